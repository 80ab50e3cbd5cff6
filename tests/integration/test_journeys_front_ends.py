"""The journeys of messages over every front end, on three nodes, one with a leader killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer

from goqueue.client.http import Client
from goqueue.grpc import Client as GrpcClient
from goqueue.grpc import GrpcSettings
from goqueue.model.errors import GoQueueError
from goqueue.wire.http.bodies.journeys import Journey, JourneyEntry

from .cluster import Cluster, ClusterBroker
from .sharing import commit, configure, received, share_consumer
from .sqs import Queue, connect
from .waiting import eventually

pytestmark = [pytest.mark.timeout(240), pytest.mark.single_node("starts a cluster by itself")]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
QUEUE, LETTERS = "orders", "letters"
TASKS, WORKERS = "tasks", "workers"
SETTINGS: dict[str, object] = {
    "journeys.partitions": 2,
    "cluster.replication_factor": 3,
    "listeners.grpc": "127.0.0.1:0",
}
VISIBILITY_S = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, settings=SETTINGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def queue_at(node: ClusterBroker, name: str, **attributes: str) -> Queue:
    """A queue, over SQS at one node; it is created if there is none yet."""
    client = connect(node.sqs, attempts_max=8)
    return Queue(client, client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def post(node: ClusterBroker, path: str, body: object) -> Any:
    """Answer of the HTTP API; None while owners change."""
    data = json.dumps(body).encode()
    asked = Request(f"{node.http}{path}", data, {"content-type": "application/json"})
    try:
        with urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read() or b"{}")
    except HTTPError as error:
        if error.code != 503:
            raise
        return None


def receive_over_http(node: ClusterBroker) -> str:
    """Receive the next message of the queue over HTTP; return its id."""
    body = {"topic": QUEUE, "max_messages": 1, "wait_ms": 5000}

    def received() -> Any:
        answer = post(node, f"/v1/groups/{QUEUE}/receive", body)
        return answer and answer["messages"]

    [message] = eventually(received, because="a message is received over HTTP")
    return str(message["id"])


def journey_at(node: ClusterBroker, message_id: str) -> Journey | None:
    """A journey as a node tells it; None while it is being restarted."""
    with Client(node.http) as client:
        try:
            return client.journeys.get(message_id)
        except GoQueueError:
            return None


def kinds(journey: Journey | None) -> list[str]:
    return [] if journey is None else [one.kind for one in journey.entries]


def reaching(journey: Journey) -> list[JourneyEntry]:
    """The entries without deliveries that came too late for their fetch and were returned.

    A fetch ends early if its client has sent more requests; such a delivery is not counted.
    """
    found: list[JourneyEntry] = []
    for one in journey.entries:
        if one.kind == "returned" and found[-1].kind == "delivered":
            found.pop()
        else:
            found.append(one)
    return found


def test_a_journey_is_complete_in_order_and_the_same_from_every_node(cluster: Cluster) -> None:
    first, second, _ = cluster.nodes.values()
    letters = queue_at(first, LETTERS)
    policy = json.dumps({"deadLetterTargetArn": letters.arn, "maxReceiveCount": 3})
    source = queue_at(first, QUEUE, RedrivePolicy=policy, VisibilityTimeout=str(VISIBILITY_S))
    for topic in (QUEUE, LETTERS, "__journeys"):
        cluster.until_in_sync(topic)

    # Sent over Kafka, delayed.
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    headers = [("goqueue-delay-ms", b"1000"), ("traceparent", PARENT.encode())]
    producer.produce(QUEUE, b"body", key=b"customer-7", headers=headers)
    assert producer.flush(30) == 0

    # Delivered over SQS, and given back.
    over_sqs = queue_at(second, QUEUE)
    message = over_sqs.receive_one(MessageAttributeNames=["All"])
    assert message["MessageAttributes"]["traceparent"]["StringValue"] == PARENT
    over_sqs.hide(message, 0)

    # Delivered over HTTP by a survivor; the leader of its partition is killed; its lease expires.
    victim = cluster.leader_of(QUEUE)
    one, other = (node for number, node in cluster.nodes.items() if number != victim)
    received = receive_over_http(one)
    cluster.nodes[victim].kill()

    # Delivered a third time over SQS, and not acknowledged: it becomes a dead letter.
    again = queue_at(other, QUEUE).receive_all(1)
    assert [found["Body"] for found in again] == ["body"]
    dead_letters = queue_at(other, LETTERS)
    eventually(lambda: dead_letters.counts()[0] == 1, because="there is a dead letter")
    cluster.nodes[victim].start()

    # Redriven over HTTP, acknowledged over SQS.
    redrive = {"dead_letter_topic": LETTERS}
    eventually(lambda: post(other, f"/v1/deadletters/{QUEUE}/redrives", redrive))
    last = source.receive_all(1)
    source.delete(last[0])

    expected = [
        "scheduled",
        "released",
        "arrived",
        "stored",
        *("delivered", "nacked"),
        *("delivered", "lease_expired"),
        *("delivered", "lease_expired"),
        "dead_lettered",
        "arrived",
        "stored",
        "redriven",
        "arrived",
        "stored",
        *("delivered", "acked"),
    ]
    # Each topic is recorded on its own, so the last event may be there before an earlier one.
    journey = eventually(
        lambda: (found := journey_at(one, received)) and kinds(found) == expected and found,
        because="the journey is whole",
    )
    assert journey.complete
    for node in cluster.nodes.values():
        told = eventually(lambda node=node: journey_at(node, received))  # type: ignore[misc]
        assert told == journey
    with Client(one.http) as client:
        page = client.journeys.list_page(trace_id=TRACE)
        assert len(page.journeys) == 3


def test_calls_and_members_of_a_share_group_are_in_one_journey(cluster: Cluster) -> None:
    """Clients of gRPC and of the Kafka protocol take turns with one message of one group."""
    first, second, third = cluster.nodes.values()
    with Client(first.http) as client:
        client.topics.create(TASKS, partitions=1)
    cluster.until_in_sync(TASKS)
    configure(cluster.bootstrap, WORKERS, share_auto_offset_reset="earliest")

    # Sent over gRPC, with the context of the call.
    settings = GrpcSettings(metadata={"traceparent": PARENT})
    with GrpcClient(second.grpc, settings) as client:
        sent = client.publish(TASKS, "body", key="customer-7")

    # Fetched by a member of the share group, and released.
    with share_consumer(cluster.bootstrap, WORKERS, TASKS) as member:
        message = one_of(member)
        assert message.headers() == [("traceparent", PARENT.encode())]
        member.acknowledge(message, AcknowledgeType.RELEASE)
        commit(member)

    # Pulled over gRPC from another node, and returned.
    with GrpcClient(third.grpc) as client:
        queue = client.queue(TASKS, group=WORKERS, consumer="caller")
        [pulled] = eventually(lambda: queue.receive(1, wait=5), because="it is delivered again")
        assert (pulled.attempt, pulled.id) == (2, sent.id)
        assert pulled.headers == (("traceparent", PARENT.encode()),)
        queue.nack(pulled, delay=0)

    # Fetched again, and accepted.
    with share_consumer(cluster.bootstrap, WORKERS, TASKS) as member:
        message = one_of(member)
        assert message.delivery_count() == 3
        member.acknowledge(message)
        commit(member)

    journey = eventually(
        lambda: (found := journey_at(first, sent.id)) and kinds(found)[-1:] == ["acked"] and found,
        because="the journey has reached its end",
    )
    entries = reaching(journey)
    assert [one.kind for one in entries] == [
        "received",
        "stored",
        *("delivered", "nacked"),
        *("delivered", "nacked"),
        *("delivered", "acked"),
    ]
    assert journey.complete
    assert journey.entries[0].listener == "grpc"
    deliveries = [one for one in entries if one.kind == "delivered"]
    assert [one.attempt for one in deliveries] == [1, 2, 3]
    assert [one.consumer == "caller" for one in deliveries] == [False, True, False]
    for node in (second, third):
        assert eventually(lambda node=node: journey_at(node, sent.id)) == journey  # type: ignore[misc]
    with Client(third.http) as client:
        page = client.journeys.list_page(trace_id=TRACE, group=WORKERS, outcome="acked")
        assert [one.message.id for one in page.journeys] == [sent.id]


def one_of(member: ShareConsumer) -> Message:
    """The next message of a member."""
    [message] = eventually(lambda: received(member), because="a message is fetched")
    return message
