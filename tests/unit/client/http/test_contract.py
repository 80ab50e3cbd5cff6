"""The client and the broker mean the same: every request has its route, every answer its reader.

The requests are decoded by the broker's own decoders, and answers made of the broker's own structs
are read by the client.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from goqueue.client.errors import BrokerRefused
from goqueue.client.http import AclSelection, NewAcl
from goqueue.client.http import group_results as queue_answers
from goqueue.client.http.messages import Outgoing, encoded, encoded_to
from goqueue.client.http.request import Request
from goqueue.client.http.requests import dead_letters
from goqueue.client.http.requests.acls import AclRequests, RoleRequests
from goqueue.client.http.requests.audit import AuditRequests
from goqueue.client.http.requests.backups import BackupRequests
from goqueue.client.http.requests.cluster import ClusterRequests
from goqueue.client.http.requests.dead_letters import DeadLetterRequests, LetterFilter
from goqueue.client.http.requests.groups import GroupRequests
from goqueue.client.http.requests.journeys import JourneyRequests
from goqueue.client.http.requests.members import MemberRequests
from goqueue.client.http.requests.messages import MessageRequests
from goqueue.client.http.requests.node import NodeRequests
from goqueue.client.http.requests.queries import QueryRequests
from goqueue.client.http.requests.queues import QueueRequests
from goqueue.client.http.requests.quotas import QuotaRequests
from goqueue.client.http.requests.reports import ReportRequests
from goqueue.client.http.requests.schedules import ScheduleRequests
from goqueue.client.http.requests.tenants import TenantRequests
from goqueue.client.http.requests.topics import TopicRequests
from goqueue.client.http.requests.transactions import InTransaction, TransactionRequests
from goqueue.client.http.requests.users import KeyRequests, UserRequests
from goqueue.delivery import LaneStats, PartitionStats, QueueSettings, Totals
from goqueue.model.errors import StaleReceipt
from goqueue.model.names import TopicPartition
from goqueue.model.queries import Attempt
from goqueue.wire.carrier.problems import problem_of
from goqueue.wire.carrier.routing import Operation
from goqueue.wire.http.bodies import deadletters as letter_bodies
from goqueue.wire.http.bodies import queues as bodies
from goqueue.wire.http.operations import OPERATIONS

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MESSAGES, TOPICS, GROUPS = MessageRequests(), TopicRequests(), GroupRequests()
SCHEDULES, QUEUE = ScheduleRequests(), QueueRequests("orders", "bill/ing", "me")
LETTERS = DeadLetterRequests("orders", "orders.graveyard")
MEMBER = MemberRequests("g", "m", "i")
TRANSACTIONS, INSIDE = TransactionRequests(), InTransaction("abc")
QUERIES = QueryRequests()
REPORTS = ReportRequests()
CLUSTER = ClusterRequests()
TENANTS = TenantRequests()
USERS, KEYS = UserRequests(), KeyRequests()
QUOTAS = QuotaRequests()
ACLS, ROLES = AclRequests(), RoleRequests()
READERS = NewAcl(kind="TOPIC", name="orders", principal="Role:readers", action="READ")
OWNED = frozenset({TopicPartition("orders", 1)})

REQUESTS: dict[str, Request[Any]] = {
    "takeBackupCut": BackupRequests().cut(topics=["orders"]),
    "readBackupBatches": BackupRequests().read("0123456789abcdef" * 2, 1, offset=3, until=7),
    "readAudit": AuditRequests().read(
        from_=NOON,
        until=NOON,
        cursor="7",
        user="alice",
        operation="topics.create",
        outcome="denied",
        resource="orders",
        limit=5,
        wait=1,
    ),
    "getJourney": JourneyRequests().get("orders:0:7", topic="orders"),
    "listJourneys": JourneyRequests().list_page(
        topic="orders",
        partition=1,
        offset=7,
        group="billing",
        outcome="acked",
        key="k",
        trace_id="0" * 32,
        from_=NOON,
        until=NOON,
        limit=5,
        cursor="j0:1:2",
    ),
    "countJourneys": JourneyRequests().stats(
        "orders", partition=1, group="billing", from_=NOON, until=NOON
    ),
    "readJourneyEvents": JourneyRequests().events(
        topic="orders",
        partition=1,
        group="billing",
        outcome="acked",
        from_=NOON,
        until=NOON,
        limit=5,
        cursor="j0:1:2",
        wait=1,
    ),
    "searchMessages": MessageRequests().search_page(
        "orders",
        key="k",
        trace_id="0" * 32,
        header="tenant",
        header_value="acme",
        text="v",
        partition=1,
        from_=NOON,
        until=NOON,
        limit=5,
    ),
    "listQuotas": QUOTAS.list_all({"user": "alice", "client-id": None}, strict=True),
    "changeQuota": QUOTAS.set({"user": "alice"}, {"request_rate": 0.5, "topics": None}),
    "deleteQuota": QUOTAS.delete({"user": None}),
    "showQuotaUsage": QUOTAS.usage(),
    "listAcls": ACLS.list_page(
        AclSelection(kind="TOPIC", name="orders", pattern="MATCH"), limit=5, cursor="b"
    ),
    "createAcls": ACLS.create([READERS]),
    "deleteAcls": ACLS.delete(AclSelection(principal="User:alice"), dry_run=True),
    "testAccess": ACLS.test("User:alice", "READ", "TOPIC", "orders", host="10.0.0.1"),
    "listRoles": ROLES.list_page(limit=5, cursor="b"),
    "createRole": ROLES.create("readers", ["User:alice"]),
    "showRole": ROLES.get("readers"),
    "deleteRole": ROLES.delete("readers"),
    "grantRole": ROLES.grant("readers", ["User:alice"]),
    "revokeRole": ROLES.revoke("readers", ["User:alice"]),
    "listTenants": TENANTS.list_page(limit=5, cursor="b"),
    "createTenant": TENANTS.create("acme", description="d", admin="alice"),
    "showTenant": TENANTS.get("acme"),
    "changeTenant": TENANTS.set_state("acme", "read_only"),
    "deleteTenant": TENANTS.delete("acme", purge=True),
    "showTenantUsage": TENANTS.usage("acme"),
    "showUsage": TENANTS.own_usage(),
    "whoami": USERS.whoami(),
    "listUsers": USERS.list_page(prefix="a", limit=5, cursor="b"),
    "createUser": USERS.create("alice", "correct horse", tenant="acme"),
    "showUser": USERS.get("alice"),
    "changeUser": USERS.disable("alice"),
    "deleteUser": USERS.delete("alice"),
    "setPassword": USERS.set_password("alice", "correct horse"),
    "listKeys": KEYS.list_all("alice"),
    "createKey": KEYS.create("alice", kind="access", description="d", expires_at=NOON),
    "showKey": KEYS.get("k"),
    "rotateKey": KEYS.rotate("k", overlap=60, ttl=3600),
    "deleteKey": KEYS.delete("k"),
    "showCluster": CLUSTER.info(),
    "showClusterHealth": CLUSTER.health(),
    "showClusterLevel": CLUSTER.level(),
    "finalizeClusterLevel": CLUSTER.finalize_level(3),
    "listNodes": CLUSTER.nodes(),
    "showNode": CLUSTER.node(1),
    "unregisterNode": CLUSTER.unregister(1),
    "showDrain": CLUSTER.drain_progress(1),
    "drainNode": CLUSTER.drain(1),
    "undrainNode": CLUSTER.undrain(1),
    "listPlacements": CLUSTER.partitions(topic="orders", node=1, state="moving"),
    "electLeaders": CLUSTER.elect(topic="orders", partitions=[0], unclean=True),
    "listVoters": CLUSTER.voters(),
    "addVoter": CLUSTER.add_voter(1),
    "removeVoter": CLUSTER.remove_voter(1),
    "startReassignments": CLUSTER.reassign(
        {TopicPartition("orders", 1): [2, 3]}, throttle_bytes_per_second=5_000_000
    ),
    "throttleReassignments": CLUSTER.throttle_reassignments(None, topic="orders", partition=1),
    "listReassignments": CLUSTER.reassignments(topic="orders"),
    "cancelReassignments": CLUSTER.cancel_reassignments(topic="orders", partition=1),
    "createTopic": TOPICS.create("orders", partitions=3, settings={"retention_ms": 5}),
    "listTopics": TOPICS.list_all(prefix="o", internal=True),
    "describeTopic": TOPICS.describe("orders"),
    "changeTopic": TOPICS.configure("orders", {"retention_ms": None}),
    "deleteTopic": TOPICS.delete("orders"),
    "listPartitions": TOPICS.partitions("orders"),
    "growTopic": TOPICS.grow("orders", partitions=6),
    "compactTopic": TOPICS.compact("orders"),
    "deleteRecords": TOPICS.delete_records("orders", partition=0, before_offset=3),
    "showLanes": TOPICS.lanes("orders"),
    "publish": MESSAGES.publish(
        "orders",
        b"\xff",
        key="k",
        headers={"a": None},
        priority="high",
        delay=1,
        ttl=2,
        acks="none",
    ),
    "publishBatch": MESSAGES.publish_encoded("orders", [encoded(Outgoing("a", deliver_at=NOON))]),
    "readMessages": MESSAGES.read_page("orders", from_=NOON, until="1h", limit=5, wait=1),
    "readMessage": MESSAGES.read_one("orders", partition=0, offset=3),
    "listGroups": GROUPS.list_all(kind="queue", prefix="b"),
    "putGroup": GROUPS.put_queue("billing", {"deliveries_max": 5, "key_order": True}),
    "changeGroup": GROUPS.configure_queue("billing", {"deliveries_max": 5, "key_order": None}),
    "describeGroup": GROUPS.describe("billing"),
    "deleteGroup": GROUPS.delete("billing"),
    "showLag": GROUPS.lag("billing"),
    "showOffsets": GROUPS.offsets("g"),
    "deleteOffsets": GROUPS.delete_offsets("g", "orders", [0]),
    "resetOffsets": GROUPS.reset("g", "orders", NOON, partitions=[0], dry_run=True),
    "showAssignment": GROUPS.assignment("g"),
    "showRebalances": GROUPS.rebalances("g"),
    "joinGroup": MEMBER.join(["orders"]),
    "heartbeat": MEMBER.heartbeat(1, OWNED),
    "revokePartitions": MEMBER.revoke(1, OWNED),
    "pollGroup": MEMBER.poll(1, limit=5, wait=1, auto_commit=False, start="latest"),
    "commitOffsets": MEMBER.commit(1, {TopicPartition("orders", 1): 7}),
    "leaveGroup": MEMBER.leave(),
    "receive": QUEUE.receive(5, wait=1, visibility=3),
    "ack": QUEUE.ack_many(["r"]),
    "nack": QUEUE.nack_many(["r"], delay=1),
    "reject": QUEUE.reject_many(["r"], reason="bad"),
    "extend": QUEUE.extend_many(["r"], visibility=3),
    "peek": QUEUE.peek(partition=1, offset=2, limit=3),
    "rewind": QUEUE.rewind(offsets={0: 5}),
    "rewindToMoment": QUEUE.rewind("2h"),
    "purge": QUEUE.purge(),
    "stats": QUEUE.stats(),
    "listSchedules": SCHEDULES.list_page(topic="orders", from_=NOON, until=5, limit=3),
    "countSchedules": SCHEDULES.count(topic="orders", from_=NOON),
    "showSchedule": SCHEDULES.get("abc"),
    "cancelSchedule": SCHEDULES.cancel("abc"),
    "cancelSchedules": SCHEDULES.cancel_many(["a", "b"]),
    "reschedule": SCHEDULES.reschedule("abc", deliver_at=NOON),
    "showScheduleStats": SCHEDULES.stats(),
    "listDeadLetters": LETTERS.list_page(
        LetterFilter(reason="r", group="g", key=b"\xff", from_="2h", until=NOON), cursor="0:4"
    ),
    "startRedrive": LETTERS.redrive(
        LetterFilter(reason="r", key="k", header=("h", b"\xff"), from_=NOON),
        letters=[(0, 4)],
        max_messages=3,
        rate_per_s=5,
        keep_copy=True,
    ),
    "previewRedrive": LETTERS.preview(LetterFilter(header=("h", None)), max_messages=3),
    "listRedrives": LETTERS.redrives(),
    "showRedrive": LETTERS.show_redrive("job"),
    "pauseRedrive": LETTERS.pause("job"),
    "resumeRedrive": LETTERS.resume("job"),
    "cancelRedrive": LETTERS.cancel("job"),
    "beginTransaction": TRANSACTIONS.begin("writer", timeout=5),
    "listTransactions": TRANSACTIONS.list_all(
        state="ongoing", prefix="w", producer_id=1, older_than=5, limit=3, after="v"
    ),
    "showTransaction": TRANSACTIONS.describe("abc"),
    "publishInTransaction": INSIDE.publish(
        [encoded_to("orders", Outgoing(b"\xff", key="k", deliver_at=NOON, partition=1))]
    ),
    "commitOffsetsInTransaction": INSIDE.commit_offsets(
        "g", {TopicPartition("orders", 1): 7}, member_id="m", member_epoch=3
    ),
    "ackInTransaction": INSIDE.ack("bill/ing", ["r"]),
    "commitTransaction": TRANSACTIONS.commit("abc"),
    "abortTransaction": TRANSACTIONS.abort("abc"),
    "beginForEpoch": QUERIES.begin(Attempt("totals", 1, 0, "a"), timeout=5),
    "prepareTransaction": QUERIES.prepare("abc", timeout=60),
    "listReports": REPORTS.list_all(match="day", limit=3, cursor="1"),
    "showReport": REPORTS.get("da/ily"),
    "listQueries": QUERIES.list_all(match="tot", limit=3, after="a"),
    "openQuery": QUERIES.open("totals", run_name="blue"),
    "showQuery": QUERIES.describe("totals"),
    "commitEpoch": QUERIES.commit("totals", 3, run=1, transactions=["abc"], is_last=True),
    "health": NodeRequests().health(),
    "version": NodeRequests().version(),
}


def operation_for(request: Request[Any]) -> Operation:
    fixed = sorted(OPERATIONS, key=lambda one: one.path.count("{"))
    for one in fixed:
        pattern = re.sub(r"{[a-z_]+}", "[^/]+", one.path)
        if one.method == request.method and re.fullmatch(pattern, request.path):
            return one
    raise AssertionError(f"there is no route {request.method} {request.path}")


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
def test_each_request_is_understood_by_the_broker(request_: Request[Any]) -> None:
    operation = operation_for(request_)
    if request_.body is not None:
        assert operation.has_body
        operation.decoder(request_.body)
    else:
        operation.decoder(urlencode(request_.query).encode())


def test_every_route_has_a_request_or_a_reason() -> None:
    without = {
        "streamMessages",  # `follow` reads by long polls, which resume and retry like any request
        "ready",
        "alive",
        "welcome",
        "openapi",
        "docs",
        "metrics",  # for monitoring systems
        "detailed_metrics",
        # For people who look at a cluster, as the web console lets them.
        "readHistory",
        "showTotals",
        "showAccess",
        "readHistogram",
        "listTopicGroups",
        "showDeliveries",
        "listInFlight",
        "settleByHand",
        "readCalendar",
        "listDeadLetterTopics",
        "listSubjects",
        "summariseDeadLetters",
        "listShareMembers",
        "planReassignments",
        "listTopicSettings",
        "listGroupSettings",
    }
    covered = {operation_for(one).name for one in REQUESTS.values()}
    missing = {one.name for one in OPERATIONS if not one.is_stream and one.name not in without}
    assert missing - covered == set()


STORED: dict[str, Any] = {
    "id": "orders:1:7",
    "topic": "orders",
    "partition": 1,
    "offset": 7,
    "timestamp": 5,
    "key": None,
    "key_encoding": "utf8",
    "value": "/w==",
    "value_encoding": "base64",
    "headers": [],
}


def test_received_messages_are_read() -> None:
    answer = bodies.Received(
        messages=[
            bodies.ReceivedMessage(
                **STORED, receipt="r", priority="high", attempt=2, leased_until=99
            )
        ]
    )
    [message] = QUEUE.receive().read(msgspec.json.encode(answer))
    assert (message.value, message.receipt, message.priority) == (b"\xff", "r", "high")
    assert (message.attempt, message.lease_until_ms, message.group) == (2, 99, "bill/ing")


def test_results_of_receipts_are_read_in_order() -> None:
    answer = bodies.Settled(
        results=[
            bodies.ReceiptResult(receipt="a"),
            bodies.ReceiptResult(receipt="b", problem=problem_of(StaleReceipt())),
        ],
        failed=1,
    )
    first, second = QUEUE.ack_many(["a", "b"]).read(msgspec.json.encode(answer))
    assert first is None
    assert isinstance(second, StaleReceipt)
    with pytest.raises(StaleReceipt):
        QUEUE.ack("b").read(msgspec.json.encode(answer))


def test_peeked_messages_are_read() -> None:
    peeked = bodies.PeekedMessage(
        **STORED,
        priority="low",
        state="leased",
        attempts=1,
        consumer="me",
        leased_until=9,
        due_at=None,
    )
    answer = msgspec.json.encode(bodies.Peeked(messages=[peeked]))
    [message] = QUEUE.peek().read(answer)
    assert (message.state, message.consumer, message.lease_until_ms) == ("leased", "me", 9)


def test_dead_letters_and_previews_are_read() -> None:
    source = letter_bodies.DeadLetterSource(topic="orders", partition=0, offset=3, group="g")
    letter = letter_bodies.DeadLetter(**STORED, reason="torn", attempts=3, died_at=8, source=source)
    page = letter_bodies.DeadLetters(
        messages=[letter], cursor="0:9", end=True, total=4, matching=1, matching_is_complete=True
    )
    read = LETTERS.list_page().read(msgspec.json.encode(page))
    assert (read.cursor, read.total) == ("0:9", 4)
    [found] = read.letters
    assert (found.value, found.reason, found.attempts, found.died_at_ms) == (b"\xff", "torn", 3, 8)
    assert found.source is not None
    assert found.source.offset == 3
    preview = letter_bodies.RedrivePreview(
        matching=5, passed_over=1, is_complete=False, messages=[letter]
    )
    started = letter_bodies.RedriveStarted(preview=preview)
    shown = LETTERS.preview().read(msgspec.json.encode(started))
    assert (shown.matching, shown.is_complete, shown.letters) == (5, False, (found,))
    with pytest.raises(BrokerRefused):
        LETTERS.redrive().read(msgspec.json.encode(started))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (queue_answers.Totals, Totals),
        (queue_answers.LaneStats, LaneStats),
        (queue_answers.PartitionStats, PartitionStats),
        (queue_answers.QueueGroupSettings, QueueSettings),
        (queue_answers.QueueStats, bodies.Stats),
        (queue_answers.Lanes, bodies.Lanes),
        (queue_answers.LaneOfTopic, bodies.LaneOfTopic),
        (queue_answers.LanesOfGroup, bodies.LanesOfGroup),
        (queue_answers.QueueGroup, bodies.QueueGroup),
        (queue_answers.StreamGroup, bodies.StreamGroup),
        (dead_letters.Redrive, letter_bodies.Redrive),
        (dead_letters.RedriveEvent, letter_bodies.RedriveEvent),
        (dead_letters.LetterSource, letter_bodies.DeadLetterSource),
    ],
)
def test_both_sides_have_the_same_fields(
    ours: type[msgspec.Struct], theirs: type[msgspec.Struct]
) -> None:
    assert ours.__struct_encode_fields__ == theirs.__struct_encode_fields__
