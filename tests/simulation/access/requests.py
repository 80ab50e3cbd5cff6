"""One request for everything that each front end offers, and how a caller sends it.

The tables are made from those of the front ends, so whatever they come to offer is in the matrix;
a request that needs more than the example of its route has an entry here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from goqueue.broker import Broker
from goqueue.model.errors import MalformedRequest
from goqueue.model.session import ListenerRules
from goqueue.wire.carrier.application import Application
from goqueue.wire.carrier.front_end import Limits
from goqueue.wire.carrier.routing import Operation
from goqueue.wire.http.front_end import FrontEnd as HttpFrontEnd
from goqueue.wire.http.operations import OPERATIONS as HTTP
from goqueue.wire.http.registry_operations import REGISTRY, registry_dialect
from goqueue.wire.kafka.configs import HTTP_LISTENER
from goqueue.wire.kafka.front_end import FrontEnd as KafkaFrontEnd
from goqueue.wire.kafka.front_end import Limits as KafkaLimits
from goqueue.wire.kafka.messages import API_BY_NAME, incremental_alter_configs
from goqueue.wire.sqs.dialect import SqsApplication
from goqueue.wire.sqs.front_end import SqsFrontEnd, SqsRules
from goqueue.wire.sqs.operations import OPERATIONS as SQS
from goqueue.wire.sqs.task_handles import write_handle
from tests.simulation.access import grpc_requests
from tests.simulation.access.scene import Scene
from tests.simulation.kafka_peer import KafkaPeer
from tests.unit.wire.http.client import Wire, request
from tests.unit.wire.kafka.client import error_codes
from tests.unit.wire.kafka.requests import (
    SERVED,
    Subject,
    add_partitions_request,
    coordinator_request,
    describe_configs_request,
    init_request,
    produce_request,
    records_for,
    request_of,
)

HOST = "192.0.2.1"
CLOSED = frozenset({-1})  # instead of error codes: the connection was closed


class Answer(NamedTuple):
    """What came back: the status or the error codes, and all bytes of the response."""

    outcome: object
    data: bytes

    @property
    def is_refusal(self) -> bool:
        return bool(self.outcome) if isinstance(self.outcome, frozenset) else self.outcome >= 400  # type: ignore[operator]


@dataclass(frozen=True)
class Case:
    """One request of one front end."""

    front_end: str
    name: str
    send: Callable[[Scene, Broker, bool], Answer]

    def __str__(self) -> str:
        return f"{self.front_end}: {self.name}"


# HTTP

_PATH = {
    "topic": "orders",
    "group": "billing",
    "partition": "0",
    "offset": "0",
    "query": "report",
    "epoch": "1",
    "node": "1",
    "user": "alice",
    "role": "operators",
    "subject": "orders-value",
    "version": "1",
    "tenant": "acme",
    "message_id": "orders:0:0",
}
_STREAM_GROUP = ("commitOffsets", "showOffsets", "resetOffsets", "showAssignment", "showRebalances")
_MEMBER = ("joinGroup", "heartbeat", "revoke", "leaveGroup", "pollGroup")
_QUERIES: Mapping[str, Mapping[str, str]] = {
    "peek": {"topic": "orders"},
    "showStats": {"topic": "orders"},
    "listInFlight": {"topic": "orders"},
    "pollGroup": {"member_id": "{member}", "member_epoch": "{member_epoch}"},
    "streamMessages": {"from": "earliest"},
    "readMessages": {"from": "earliest"},
    "searchMessages": {"key": "key"},
    "countJourneys": {"topic": "orders"},
    "readJourneyEvents": {"from": "earliest"},
    "followJourneyEvents": {"from": "earliest"},
    "listSchedules": {},
    "testAccess": {"principal": "User:a", "action": "READ", "kind": "TOPIC", "name": "t"},
    "deleteAcls": {"principal": "User:nobody"},
    "deleteQuota": {"user": "alice"},
    "readBackupBatches": {"until": "1"},
}
_BODIES: Mapping[str, Any] = {
    "createTopic": {"name": "new-topic"},
    "createUser": {"name": "bob"},
    "setPassword": {"password": "correct horse"},
    "changeTopic": {"settings": {"retention_ms": 86_400_000}},
    "growTopic": {"partitions": 2},
    "putGroup": {"kind": "queue", "settings": {"deliveries_max": 5}},
    "receive": {"topic": "orders", "max_messages": 1, "wait_ms": 0},
    "ack": {"receipts": ["{receipt}"]},
    "nack": {"receipts": ["{other_receipt}"]},
    "heartbeat": {"member_id": "{member}", "member_epoch": 1},
    "revoke": {"member_id": "{member}", "member_epoch": 1, "owned": []},
    "leaveGroup": {"member_id": "{member}"},
    "commitOffsets": {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]},
    "resetOffsets": {"topic": "orders", "to": "earliest"},
    "rewind": {"topic": "orders", "to": "earliest"},
    "startRedrive": {"dry_run": True},
    "cancelSchedules": {"ids": ["{schedule_id}", "{hidden_schedule_id}"]},
    "beginTransaction": {"transactional_id": "another-till", "timeout_ms": 30_000},
    "publishInTransaction": {"messages": [{"topic": "orders", "value": "v"}]},
    "commitOffsetsInTransaction": {
        "group": "shop",
        "offsets": [{"topic": "orders", "partition": 0, "offset": 1}],
    },
    "ackInTransaction": {"group": "billing", "receipts": ["{other_receipt}"]},
    "createRole": {"name": "new-role", "members": []},
    "throttleReassignments": {"throttle_bytes_per_second": 50_000_000},
}
# What ends something comes after what needs it.
_LAST = (
    "leaveGroup",
    "cancelSchedules",
    "commitTransaction",
    "prepareTransaction",
    "cancelRedrive",
    "cancelSchedule",
    "abortTransaction",
    "deleteKey",
    "deleteUser",
    "deleteRole",
    "deleteGroup",
    "deleteRecords",
    "deleteTopic",
    "DELETE /subjects/{subject}/versions/{version}",
    "DELETE /subjects/{subject}",
    "DeleteQueue",
    "DeleteGroups",
    "DeleteRecords",
    "DeleteTopics",
)


def _filled(value: Any, ids: Mapping[str, str]) -> Any:
    """Replace the names of ids in braces by the ids of the scene."""
    if isinstance(value, str):
        return ids.get(value.strip("{}"), value) if value.startswith("{") else value
    if isinstance(value, dict):
        return {key: _filled(one, ids) for key, one in value.items()}
    return [_filled(one, ids) for one in value] if isinstance(value, list) else value


def _path(operation: Operation, ids: Mapping[str, str], **other: str) -> str:
    values = {**_PATH, **ids, **other}
    path = operation.path
    for one in operation.parameters:
        path = path.replace(f"{{{one}}}", quote(values[one], safe=""))
    return path


def _http(
    operation: Operation,
    what: str = "",
    *,
    body: Any = None,
    group: str = "",
    message: str = "",
    query: Mapping[str, str] | None = None,
) -> Case:
    """The request of a route, or another one of it that uses other operations."""
    given, queried = body, query

    def send(scene: Scene, broker: Broker, must_authenticate: bool) -> Answer:
        application = Application(HttpFrontEnd(broker.gate, Limits(), HTTP))
        other = {"group": group} if group else {}
        if message:
            other = {"message_id": scene.ids[message]}
        if operation.name in _STREAM_GROUP:
            other = {"group": "shop"}
        elif operation.name in _MEMBER:
            other = {"group": "readers"}
        body = None
        if operation.has_body:
            usual = _BODIES.get(operation.name, operation.example or {})
            body = _filled(usual if given is None else given, scene.ids)
        usual_query = _QUERIES.get(operation.name, {}) if queried is None else queried
        query = _filled(dict(usual_query), scene.ids)
        data = request(operation.method, _path(operation, scene.ids, **other), body, **query)
        return _carried(scene, application, data, must_authenticate, operation.is_stream)

    return Case("http", f"{operation.name} {what}".strip(), send)


_BY_NAME = {one.name: one for one in HTTP}
_MORE_HTTP = [
    _http(
        _BY_NAME["putGroup"],
        "of a stream",
        body={"kind": "stream", "topics": ["orders"], "start": "earliest"},
        group="new-stream",
    ),
    _http(
        _BY_NAME["receive"],
        "with acks",
        body={"topic": "orders", "max_messages": 1, "wait_ms": 0, "acks": ["{receipt}"]},
    ),
    _http(_BY_NAME["startRedrive"], "and do it", body={}),
    _http(
        _BY_NAME["listTopics"],
        "by what they contain",
        query={"sort": "messages", "stats": "true", "internal": "true"},
    ),
    _http(_BY_NAME["listGroups"], "by lag", query={"sort": "lag", "stats": "true"}),
    _http(_BY_NAME["readHistory"], "of a topic", query={"topic": "orders"}),
    _http(_BY_NAME["readHistory"], "of a group", query={"group": "billing"}),
    _http(_BY_NAME["readAudit"], "from the start", query={"from": "earliest"}),
    _http(_BY_NAME["listJourneys"], "of a topic", query={"topic": "orders", "outcome": "acked"}),
    _http(_BY_NAME["listJourneys"], "by key", query={"topic": "orders", "key": "key"}),
    _http(_BY_NAME["listJourneys"], "by trace id", query={"trace_id": "0" * 32}),
    _http(
        _BY_NAME["getJourney"], "of a schedule", query={"topic": "orders"}, message="schedule_id"
    ),
    _http(_BY_NAME["startReassignments"], "away from a node", body={"away_from": 1}),
    _http(
        _BY_NAME["startReassignments"],
        "as a dry run",
        body={"moves": [{"topic": "orders", "partition": 0, "replicas": [1]}], "dry_run": True},
    ),
]


def _carried(
    scene: Scene,
    application: Application,
    data: bytes,
    must_authenticate: bool,
    is_stream: bool = False,
) -> Answer:
    rules = ListenerRules(application.front.listener, must_authenticate=must_authenticate)
    wire = Wire(application, rules)
    wire.feed(data)

    def is_answered() -> bool:
        answers = wire.answers
        is_begun = bool(answers) and bool(answers[-1].status)
        return is_begun and (answers[-1].is_whole or (is_stream and answers[-1].status < 400))

    scene.world.run_until(is_answered)
    answer = wire.answers[-1]
    wire.close()
    return Answer(answer.status, answer.body)


# The schema registry

_REGISTRY_BODIES: Mapping[str, Any] = {
    "lookup": {"schema": "{text}"},
    "register": {"schema": "{text}"},
    "compare": {"schema": "{text}"},
    "compare_with_version": {"schema": "{text}"},
    "set_config": {"compatibility": "NONE"},
    "set_mode": {"mode": "READWRITE"},
}


def _registry(operation: Operation) -> Case:
    def send(scene: Scene, broker: Broker, must_authenticate: bool) -> Answer:
        application = Application(HttpFrontEnd(broker.gate, Limits(), ()), registry_dialect())
        body = None
        if operation.has_body:
            body = _filled(_REGISTRY_BODIES[operation.name], scene.ids)
        data = request(operation.method, _path(operation, scene.ids), body)
        return _carried(scene, application, data, must_authenticate)

    return Case("registry", f"{operation.method} {operation.path}", send)


# SQS

_QUEUE = {"QueueUrl": "http://localhost/000000000000/parcels"}
_DEAD_ARN = "arn:aws:sqs:us-east-1:000000000000:parcels-dead"
_ENTRY = {"Id": "a", "MessageBody": "m"}
_SQS_BODIES: Mapping[str, Any] = {
    "CreateQueue": {"QueueName": "new-queue"},
    "DeleteQueue": _QUEUE,
    "GetQueueUrl": {"QueueName": "parcels"},
    "ListQueues": {},
    "ListDeadLetterSourceQueues": {"QueueUrl": "http://localhost/000000000000/parcels-dead"},
    "PurgeQueue": _QUEUE,
    "GetQueueAttributes": {**_QUEUE, "AttributeNames": ["All"]},
    "SetQueueAttributes": {**_QUEUE, "Attributes": {"DelaySeconds": "1"}},
    "TagQueue": {**_QUEUE, "Tags": {"a": "b"}},
    "UntagQueue": {**_QUEUE, "TagKeys": ["a"]},
    "ListQueueTags": _QUEUE,
    "AddPermission": {**_QUEUE, "Label": "a", "AWSAccountIds": ["1"], "Actions": ["*"]},
    "RemovePermission": {**_QUEUE, "Label": "a"},
    "SendMessage": {**_QUEUE, "MessageBody": "m"},
    "SendMessageBatch": {**_QUEUE, "Entries": [_ENTRY]},
    "ReceiveMessage": {
        "QueueUrl": "http://localhost/000000000000/parcels-dead",
        "MessageSystemAttributeNames": ["All"],
    },
    "DeleteMessage": {**_QUEUE, "ReceiptHandle": "{receipt}"},
    "DeleteMessageBatch": {**_QUEUE, "Entries": [{"Id": "a", "ReceiptHandle": "{receipt}"}]},
    "ChangeMessageVisibility": {
        **_QUEUE,
        "ReceiptHandle": "{receipt}",
        "VisibilityTimeout": 10,
    },
    "ChangeMessageVisibilityBatch": {
        **_QUEUE,
        "Entries": [{"Id": "a", "ReceiptHandle": "{receipt}", "VisibilityTimeout": 10}],
    },
    "StartMessageMoveTask": {"SourceArn": _DEAD_ARN},
    "ListMessageMoveTasks": {"SourceArn": _DEAD_ARN},
    "CancelMessageMoveTask": {"TaskHandle": write_handle(_DEAD_ARN, "no-such-task")},
}


def _sqs(action: str) -> Case:
    def send(scene: Scene, broker: Broker, must_authenticate: bool) -> Answer:
        front = SqsFrontEnd(broker.gate, Limits(), SQS, SqsRules())
        body = json.dumps(_filled(_SQS_BODIES[action], scene.ids)).encode()
        head = {"x-amz-target": f"AmazonSQS.{action}", "content-type": "application/x-amz-json-1.0"}
        data = request("POST", "/", body, headers=head)
        return _carried(scene, SqsApplication(front), data, must_authenticate)

    return Case("sqs", action, send)


# gRPC


def _grpc(name: str) -> Case:
    def send(scene: Scene, broker: Broker, must_authenticate: bool) -> Answer:
        sent = grpc_requests.send(name, scene, broker, _filled, must_authenticate=must_authenticate)
        return Answer(*sent)

    return Case("grpc", name, send)


# Kafka


def _kafka(name: str, what: str = "", make: Callable[[int, Subject], Any] | None = None) -> Case:
    def send(scene: Scene, broker: Broker, must_authenticate: bool) -> Answer:
        front = KafkaFrontEnd(
            broker.local_gate, KafkaLimits(), advertised=lambda _: ("localhost", 9092)
        )
        mechanisms = ("PLAIN",) if must_authenticate else ()
        rules = ListenerRules(
            "kafka", must_authenticate=must_authenticate, sasl_mechanisms=mechanisms
        )
        peer = KafkaPeer(front, scene.world.run_until, rules=rules, host=HOST)
        api = API_BY_NAME[name]
        version = api.version_stable_max
        found = broker.topics.find("orders")
        subject = Subject(topic_id=found.id if found is not None else bytes(16))
        wanted = request_of(name, version, subject) if make is None else make(version, subject)
        try:
            peer.send(peer.frame(api, version, wanted))
        except MalformedRequest:
            return Answer(CLOSED, peer.received)
        scene.world.run_until(lambda: peer.is_closed or peer.has_answer)
        if peer.is_closed:
            return Answer(CLOSED, peer.received)
        data = peer.received
        answer = peer.take_answer(api, version)
        return Answer(frozenset(error_codes(answer)), data)

    return Case("kafka", f"{name} {what}".strip(), send)


_GROUP, _BROKER = 32, 4


def _altered(kind: int, name: str, setting: str, value: str) -> Any:
    config = incremental_alter_configs.AlterableConfig(name=setting, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


_MORE_KAFKA = [
    _kafka(
        "DescribeConfigs",
        "of a group",
        lambda version, _: describe_configs_request(version, "shop", kind=_GROUP),
    ),
    _kafka(
        "DescribeConfigs",
        "of a node",
        lambda version, _: describe_configs_request(version, "1", kind=_BROKER),
    ),
    _kafka(
        "DescribeConfigs",
        "of the HTTP listener",
        lambda version, _: describe_configs_request(
            version, "1", kind=_BROKER, keys=[HTTP_LISTENER]
        ),
    ),
    _kafka(
        "DescribeConfigs",
        "of all nodes",
        lambda version, _: describe_configs_request(version, "", kind=_BROKER),
    ),
    _kafka(
        "IncrementalAlterConfigs",
        "of a group",
        lambda *_: _altered(_GROUP, "shop", "consumer.session.timeout.ms", "50000"),
    ),
    _kafka(
        "IncrementalAlterConfigs",
        "of a node",
        lambda *_: _altered(_BROKER, "", "log.retention.ms", "86400000"),
    ),
    _kafka(
        "FindCoordinator",
        "of a transaction",
        lambda version, one: coordinator_request(version, one.transaction, kind=1),
    ),
    _kafka("InitProducerId", "of a transaction", lambda _, one: init_request(one)),
    _kafka(
        "AddPartitionsToTxn",
        "to verify",
        lambda version, one: add_partitions_request(version, one, verify_only=True),
    ),
    _kafka(
        "Produce",
        "in a transaction",
        lambda version, one: produce_request(
            version, one, records_for(version, b"v"), transactional_id=one.transaction
        ),
    ),
]


def _in_order(cases: list[Case]) -> list[Case]:
    return sorted(cases, key=lambda one: _LAST.index(one.name) if one.name in _LAST else -1)


CASES: list[Case] = [
    *_in_order([*(_http(one) for one in HTTP), *_MORE_HTTP]),
    *_in_order([_registry(one) for one in REGISTRY]),
    *_in_order([_sqs(one.name) for one in SQS]),
    *(_grpc(one) for one in grpc_requests.NAMES),
    *_in_order([*(_kafka(one.name) for one in SERVED), *_MORE_KAFKA]),
]
FRONT_ENDS = ("http", "registry", "sqs", "grpc", "kafka")
