"""Tenants behind the gate of one node: each edge at which a name could get through."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from goqueue.broker.gate import Gate
from goqueue.broker.gate.areas.configs import Change, ChangeKind
from goqueue.broker.gate.areas.named_queues import NamedQueueSpec, Posting
from goqueue.broker.gate.areas.queues import QueueSettings
from goqueue.broker.gate.areas.records import EARLIEST, Outgoing, Span
from goqueue.broker.gate.areas.schemas import Request, SchemaKind, Subject
from goqueue.broker.gate.areas.transactions import Addressed
from goqueue.delivery.redrive import LetterFilter, RedriveOrder
from goqueue.groups import CommitOffsets, ConsumerHeartbeat, Join, OffsetToCommit
from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import (
    CLUSTER,
    Acl,
    AclFilter,
    Action,
    PatternKind,
    Permission,
    Resource,
    ResourceKind,
)
from goqueue.model.attributes import Attributes
from goqueue.model.batch import Record
from goqueue.model.errors import (
    AccessDenied,
    GoQueueError,
    InvalidCredential,
    InvalidGroupId,
    InvalidTopicName,
    SchemaRefused,
    TenantExists,
    TenantInUse,
    TenantSuspended,
    UnknownGroup,
    UnknownSchedule,
    UnknownTenant,
    UnknownTopic,
    UnknownTopicId,
    UnknownTransaction,
)
from goqueue.model.queries import Attempt
from goqueue.model.session import Session
from goqueue.model.tenants import TenantState
from tests.unit.broker.node import Node

OPERATOR = Session("http", principal="User:root")
ACME = Session("http", principal="User:alice", tenant="acme")
OTHER = Session("http", principal="User:bob", tenant="other")
PLAIN = Session("http", principal="User:carol")
EVERYBODY = (ACME, OTHER, PLAIN)


class Open:
    """Allows everything to everybody, so that only tenants keep clients apart."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return True

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        return True


class OnlyId(Open):
    """Allows everything with one transactional id."""

    def __init__(self, name: str) -> None:
        self._name = name

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return resource == Resource(ResourceKind.TRANSACTIONAL_ID, self._name)


class House:
    """One node with two tenants, of which nobody is an operator but the super user."""

    def __init__(self) -> None:
        self.node = Node(security__super_users="User:root")
        self.gate.policy = Open()
        for tenant in ("acme", "other"):
            self.wait(self.gate.tenants.create(OPERATOR, tenant=tenant))

    @property
    def gate(self) -> Gate:
        return self.node.broker.gate

    def wait(self, promise: Promise[Any]) -> Any:
        return self.node.wait(promise)

    def answer(self, call: Callable[[], Any]) -> Any:
        """The answer of an operation, or of a query, which gives it at once."""
        result = call()
        return self.wait(result) if isinstance(result, Promise) else result

    def topic(self, session: Session, name: str = "orders") -> None:
        self.wait(self.gate.topics.create(session, name=name, partition_count=1))

    def publish(self, session: Session, value: bytes, topic: str = "orders") -> Any:
        records = [Record(None, value)]
        [result] = self.wait(self.gate.records.publish(session, topic=topic, records=records))
        return result

    def read(self, session: Session, topic: str = "orders") -> list[tuple[str, bytes | None]]:
        page = self.wait(
            self.gate.records.read(
                session,
                topic=topic,
                spans=[Span(0, EARLIEST)],
                records_max=100,
                bytes_max=1 << 20,
                cancellation=Cancellation(),
            )
        )
        return [(partition.name.topic, record.value) for partition, record in page.records]

    def receive(self, session: Session, group: str = "work", topic: str = "orders") -> Any:
        return self.wait(
            self.gate.queues.receive(
                session,
                group=group,
                topic=topic,
                consumer="c",
                messages_max=10,
                wait_ms=0,
                visibility_ms=None,
                cancellation=Cancellation(),
            )
        )


@pytest.fixture
def house() -> House:
    return House()


def refused(house: House, error: type[GoQueueError], call: Callable[[], Any]) -> GoQueueError:
    """Call, and return the error; it names no tenant."""
    with pytest.raises(error) as caught:
        house.answer(call)
    assert "~" not in str(caught.value)
    return caught.value


# Topics


def test_each_tenant_has_its_own_topic_of_a_name(house: House) -> None:
    for session, value in zip(EVERYBODY, (b"a", b"b", b"c"), strict=True):
        house.topic(session)
        house.publish(session, value)
    for session, value in zip(EVERYBODY, (b"a", b"b", b"c"), strict=True):
        assert house.read(session) == [("orders", value)]
        assert [one.name for one in house.gate.topics.all(session) if not one.is_internal] == [
            "orders"
        ]
        assert [one.name for one in house.gate.topics.summaries(session)] == ["orders"]
    names = {one.name for one in house.gate.topics.summaries(OPERATOR)}
    assert names == {"orders", "~acme~orders", "~other~orders"}


def test_internal_topics_are_not_visible_to_a_tenant(house: House) -> None:
    house.node.host_groups()
    assert not house.gate.topics.all(ACME)
    assert house.gate.topics.find(ACME, topic="__consumer_offsets") is None
    refused(house, UnknownTopic, lambda: house.gate.topics.get(ACME, topic="__consumer_offsets"))
    refused(
        house,
        InvalidTopicName,
        lambda: house.gate.topics.create(ACME, name="__consumer_offsets"),
    )
    house.topic(ACME, "__mine")
    assert not house.gate.topics.get(ACME, topic="__mine").is_internal


def test_internal_topics_with_what_all_tenants_have_are_for_operators(house: House) -> None:
    house.topic(ACME)
    delayed = Outgoing(Record(None, b"secret of acme"), Attributes(delay_ms=60_000))
    house.wait(house.gate.records.publish(ACME, topic="orders", records=[delayed]))
    topic_id = house.gate.topics.get(OPERATOR, topic="__scheduled").id
    assert not [one for one in house.gate.topics.all(PLAIN) if one.is_internal]
    for call in (
        lambda: house.read(PLAIN, "__scheduled"),
        lambda: house.gate.topics.get(PLAIN, topic="__scheduled"),
        lambda: house.gate.grants(PLAIN).reader("__scheduled", 0),
    ):
        error = refused(house, AccessDenied, call)
        assert isinstance(error, AccessDenied)
        assert error.is_hidden
    reader = partial(house.gate.grants(PLAIN).reader, topic_id, 0)
    refused(house, UnknownTopicId, reader)


def test_a_producer_of_a_tenant_writes_in_its_own_transactions(house: House) -> None:
    house.gate.grants(ACME).check_transactional_id("tx")
    house.gate.policy = OnlyId("~acme~tx")
    house.gate.grants(ACME).check_transactional_id("tx")
    refused(house, AccessDenied, lambda: house.gate.grants(OTHER).check_transactional_id("tx"))
    refused(house, AccessDenied, lambda: house.gate.grants(ACME).check_transactional_id("other"))


def test_a_topic_id_of_another_tenant_is_unknown(house: House) -> None:
    house.topic(ACME)
    topic_id = house.gate.topics.get(ACME, topic="orders").id
    for session in (OTHER, PLAIN):
        grants = house.gate.grants(session)
        get_by_id = partial(house.gate.topics.get_by_id, session, topic_id=topic_id)
        for call in (
            get_by_id,
            partial(grants.reader, topic_id, 0),
            partial(grants.writer, topic_id, 0),
        ):
            refused(house, UnknownTopicId, call)
    assert house.gate.topics.get_by_id(ACME, topic_id=topic_id).name == "orders"
    assert house.gate.grants(ACME).writer(topic_id, 0).log_start_offset == 0


def test_no_client_can_send_the_prefix(house: House) -> None:
    house.topic(ACME)
    for session in (OTHER, PLAIN):
        for name in ("~acme~orders", "~nobody~orders"):
            refused_here = (UnknownTopic, InvalidTopicName)
            with pytest.raises(refused_here):
                house.gate.topics.get(session, topic=name)
            with pytest.raises(refused_here):
                house.gate.grants(session).reader(name, 0)
            with pytest.raises(InvalidTopicName):
                house.wait(house.gate.topics.create(session, name=name))
    assert house.gate.topics.get(OPERATOR, topic="~acme~orders").partition_count == 1


def test_a_prefix_without_a_tenant_is_not_a_topic_name() -> None:
    node = Node()
    with pytest.raises(InvalidTopicName):
        node.wait(node.broker.gate.topics.create(PLAIN, name="~acme~orders"))


def test_metrics_do_not_confuse_topics_of_tenants(house: House) -> None:
    house.topic(ACME, "a.b")
    house.topic(OTHER, "a_b")
    error = refused(house, InvalidTopicName, lambda: house.gate.topics.create(ACME, name="a_b"))
    assert "'a.b'" in str(error)


def test_a_long_name_leaves_room_for_the_prefix(house: House) -> None:
    house.topic(ACME, "x" * 243)
    error = refused(house, InvalidTopicName, lambda: house.gate.topics.create(ACME, name="x" * 244))
    assert "at most 243" in str(error)


def test_auto_created_topics_are_those_of_the_tenant(house: House) -> None:
    house.publish(ACME, b"a", "new")
    assert house.gate.topics.find(OTHER, topic="new") is None
    assert house.read(ACME, "new") == [("new", b"a")]


def test_a_stream_of_records_has_plain_names(house: House) -> None:
    house.topic(ACME)
    house.publish(ACME, b"a")
    stream = house.wait(house.gate.records.follow(ACME, topic="orders", spans=[Span(0, EARLIEST)]))
    assert stream.places[0].partition.name.topic == "orders"
    page = house.wait(stream.next(records_max=9, bytes_max=1 << 20, wait_ms=0))
    assert [(one.name.topic, record.value) for one, record in page.records] == [("orders", b"a")]
    stream.close()


# Groups


def test_groups_of_tenants_do_not_meet(house: House) -> None:
    for session in EVERYBODY:
        house.topic(session)
        house.publish(session, session.principal.encode())
        house.wait(house.gate.groups.put_queue(session, group="work", settings=None))
    for session in EVERYBODY:
        found = house.receive(session)
        assert found.topic == "orders"
        assert [one.record.value for one in found] == [session.principal.encode()]
        listed = house.wait(house.gate.groups.list(session))
        assert [one.name for one in listed] == ["work"]
        assert house.wait(house.gate.groups.describe(session, group="work")).name == "work"
    listed = house.wait(house.gate.groups.list(OPERATOR))
    assert [one.name for one in listed] == ["work", "~acme~work", "~other~work"]


def test_a_receipt_of_another_tenant_settles_nothing(house: House) -> None:
    for session in (ACME, OTHER):
        house.topic(session)
        house.publish(session, b"x")
    [receipt] = house.receive(ACME).receipts
    house.receive(OTHER)
    [outcome] = house.wait(house.gate.queues.ack(OTHER, group="work", receipts=[receipt]))
    assert outcome is not None
    assert house.wait(house.gate.queues.ack(ACME, group="work", receipts=[receipt])) == [None]


def test_a_default_user_cannot_name_the_group_of_a_tenant(house: House) -> None:
    house.wait(house.gate.groups.put_queue(ACME, group="work", settings=None))
    refused_name = "~acme~work"
    with pytest.raises(InvalidGroupId):
        house.wait(house.gate.groups.describe(PLAIN, group=refused_name))
    refused(house, UnknownGroup, lambda: house.gate.groups.describe(OTHER, group="work"))


def test_offsets_belong_to_the_group_of_the_tenant(house: House) -> None:
    house.node.host_groups()
    house.topic(ACME)
    call = CommitOffsets(
        group_id="g", offsets=[OffsetToCommit(topic="orders", partition=0, offset=3)]
    )
    assert not house.wait(house.gate.group_offsets.commit(ACME, call=call)).errors
    fetched = house.wait(house.gate.group_offsets.fetch(ACME, group="g"))
    assert {
        name: {n: one.offset for n, one in its.items()} for name, its in fetched.offsets.items()
    } == {"orders": {0: 3}}
    assert not house.wait(house.gate.group_offsets.fetch(OTHER, group="g")).offsets
    lag = house.wait(house.gate.groups.lag(ACME, group="g"))
    assert [one.topic for one in lag.partitions] == ["orders"]


def test_a_regular_expression_sees_plain_names_of_its_tenant(house: House) -> None:
    house.node.host_groups()
    house.topic(ACME, "orders")
    house.topic(ACME, "returns")
    house.topic(OTHER, "orders")
    house.topic(PLAIN, "orders-plain")

    def assigned(session: Session, pattern: str) -> list[str]:
        call = ConsumerHeartbeat(
            group_id="g" + pattern,
            member_id="m",
            member_epoch=0,
            subscribed_regex=pattern,
            subscribed_topics=(),
            owned=frozenset(),
            rebalance_timeout_ms=10_000,
        )
        result = house.wait(house.gate.members.consumer_heartbeat(session, call=call))
        return sorted(topic for topic, _ in result.assignment or ())

    assert assigned(ACME, "orders.*") == ["orders"]
    assert assigned(ACME, ".*") == ["orders", "returns"]
    assert assigned(ACME, ".*acme.*") == []
    assert assigned(PLAIN, ".*") == ["orders-plain"]


def test_subscriptions_of_classic_members_are_of_their_tenant(house: House) -> None:
    """The server reads them: when offsets are deleted, and when such a member meets newer ones."""
    house.node.host_groups()
    house.topic(ACME)
    join = Join(
        group_id="g",
        member_id="",
        protocol_type="consumer",
        protocols=(("range", encode_subscription(["orders"])),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
    )
    joined = house.wait(house.gate.members.join(ACME, call=join))
    assert joined.leader_id == joined.member_id
    deleted = house.wait(
        house.gate.group_offsets.delete(ACME, group="g", partitions={"orders": [0]})
    )
    assert [type(one).__name__ for one in deleted.errors.values()] == ["GroupSubscribedToTopic"]
    assert "~" not in str(deleted.errors)
    call = ConsumerHeartbeat(
        group_id="g",
        member_id="m",
        member_epoch=0,
        subscribed_topics=("orders",),
        owned=frozenset(),
        rebalance_timeout_ms=10_000,
    )
    house.wait(house.gate.members.consumer_heartbeat(ACME, call=call))
    described = house.wait(house.gate.groups.describe_stream(ACME, group="g"))
    classic = next(one for one in described.members if one.is_classic)
    assert set(classic.subscribed_topics) == {"orders"}


# Dead letters, redrives, named queues


def test_dead_letters_stay_in_their_tenant_with_plain_names(house: House) -> None:
    # The job goes on only as long as its user is there.
    house.wait(house.gate.users.create(OPERATOR, user="alice", password=None, tenant="acme"))
    house.topic(ACME)
    house.topic(OTHER)
    house.publish(ACME, b"bad")
    [receipt] = house.receive(ACME).receipts
    house.wait(house.gate.queues.reject(ACME, group="work", receipts=[receipt], reason="r"))
    house.node.run_until(lambda: house.gate.topics.find(ACME, topic="orders.dlq") is not None)
    page = house.wait(
        house.gate.dead_letters.list(
            ACME,
            topic="orders",
            dead_letter_topic=None,
            filter=LetterFilter(group="work"),
            limit=10,
            positions=None,
        )
    )
    [letter] = page.letters
    assert page.dead_letter_topic == "orders.dlq"
    assert (letter.origin.topic, letter.origin.group) == ("orders", "work")
    assert b"~" not in b"".join(value or b"" for _, value in letter.record.headers)
    assert house.gate.topics.find(OTHER, topic="orders.dlq") is None
    job = house.wait(
        house.gate.dead_letters.redrive(
            ACME, topic="orders", dead_letter_topic=None, order=RedriveOrder()
        )
    )
    assert (job.topic, job.dead_letter_topic) == ("orders", "orders.dlq")

    def is_done() -> bool:
        shown = house.gate.dead_letters.show_redrive(ACME, topic="orders", redrive_id=job.id)
        return bool(house.wait(shown).state == "done")

    house.node.run_until(is_done)
    assert [value for _, value in house.read(ACME)] == [b"bad", b"bad"]
    assert not house.read(OTHER)
    [redriven] = [
        record
        for record in house.node.consume("~acme~orders")
        if any(name == "goqueue-redriven-from" for name, _ in record.headers)
    ]
    assert b"~" not in b"".join(value or b"" for _, value in redriven.headers)


@pytest.mark.parametrize(("session", "victim"), [(PLAIN, ACME), (OTHER, ACME), (OTHER, PLAIN)])
def test_a_forged_origin_leads_to_no_other_tenant(
    house: House, session: Session, victim: Session
) -> None:
    inside = "~acme~orders" if victim is ACME else "orders"
    house.topic(victim)
    house.topic(session, "orders.dlq")
    forged = Record(None, b"evil", (("goqueue-dead-topic", inside.encode()),))
    house.wait(house.gate.records.publish(session, topic="orders.dlq", records=[forged]))
    job = house.wait(
        house.gate.dead_letters.redrive(
            session, topic="orders", dead_letter_topic="orders.dlq", order=RedriveOrder()
        )
    )
    house.node.run_until(
        lambda: (
            house.wait(
                house.gate.dead_letters.show_redrive(session, topic="orders", redrive_id=job.id)
            ).is_ended
        )
    )
    assert not house.read(victim)


def test_named_queues_of_tenants_do_not_meet(house: House) -> None:
    queues = house.gate.named_queues
    for session in EVERYBODY:
        made = house.wait(queues.create(session, spec=NamedQueueSpec("jobs")))
        assert (made.name, made.topic, made.group) == ("jobs", "jobs", "jobs")
        posting = Posting(Record(None, session.principal.encode()), "id")
        house.wait(queues.send(session, queue=made, postings=[posting]))
    for session in EVERYBODY:
        assert [one.name for one in house.wait(queues.list(session))] == ["jobs"]
        assert queues.names_by_group(session) == {"jobs": "jobs"}
        found = house.wait(
            queues.receive(
                session,
                queue=queues.find(session, name="jobs"),
                consumer="c",
                messages_max=10,
                wait_ms=0,
                visibility_ms=1000,
                cancellation=Cancellation(),
            )
        )
        assert [one.record.value for one in found.received] == [session.principal.encode()]


def test_the_dead_letter_topic_of_a_group_is_one_of_its_tenant(house: House) -> None:
    groups = house.gate.groups
    settings = QueueSettings(dead_letter_topic="dead")
    made = house.wait(groups.put_queue(ACME, group="g", settings=settings))
    assert made.settings.dead_letter_topic == "dead"
    assert house.wait(groups.describe(OPERATOR, group="~acme~g")).settings.dead_letter_topic == (
        "~acme~dead"
    )
    changed = house.wait(
        groups.change_queue(ACME, group="g", changes={"dead_letter_topic": "other"})
    )
    assert changed.settings.dead_letter_topic == "other"


# Schedules


def test_schedules_of_other_tenants_look_as_if_they_did_not_exist(house: House) -> None:
    for session in EVERYBODY:
        house.topic(session)
    later = Attributes(delay_ms=60_000)
    ids = []
    for session in EVERYBODY:
        outgoing = Outgoing(Record(None, b"x"), later)
        [result] = house.wait(
            house.gate.records.publish(session, topic="orders", records=[outgoing])
        )
        ids.append(result.schedule_id)
    schedules = house.gate.schedules
    for session, own in zip(EVERYBODY, ids, strict=True):
        page = house.wait(
            schedules.list(session, topic=None, from_ms=0, until_ms=1 << 60, limit=9, after="")
        )
        assert [(one.id, one.topic) for one in page.entries] == [(own, "orders")]
        count = schedules.count(session, topic=None, from_ms=0, until_ms=1 << 60)
        assert house.wait(count) == 1
        assert house.wait(schedules.show(session, schedule_id=own)).topic == "orders"
        for other in ids:
            if other != own:
                for call in (
                    partial(schedules.show, session, schedule_id=other),
                    partial(schedules.move, session, schedule_id=other, due_ms=1),
                    partial(schedules.cancel, session, schedule_id=other),
                ):
                    refused(house, UnknownSchedule, call)
        outcomes = house.wait(schedules.cancel_many(session, schedule_ids=ids))
        assert [one is None for one in outcomes] == [one == own for one in ids]
    refused(house, AccessDenied, lambda: schedules.stats(ACME))


# Transactions


def test_transactions_of_another_tenant_are_unknown(house: House) -> None:
    house.topic(ACME)
    transactions = house.gate.transactions
    for name in ("t", None):
        begun = house.wait(transactions.begin(ACME, transactional_id=name, timeout_ms=60_000))
        assert not begun.transactional_id.startswith("~")
        for session in (OTHER, PLAIN):
            show = partial(transactions.show, session, transaction_id=begun.id)
            refused(house, UnknownTransaction, show)
            abort = partial(transactions.abort, session, transaction_id=begun.id)
            refused(house, UnknownTransaction, abort)
        message = Addressed("orders", Outgoing(Record(None, b"in")), None)
        house.wait(
            transactions.publish(ACME, transaction_id=begun.id, messages=[message], now_ms=0)
        )
        house.wait(transactions.commit(ACME, transaction_id=begun.id))
        shown = house.wait(transactions.show(ACME, transaction_id=begun.id)).view
        assert shown.transactional_id == begun.transactional_id
        assert {one.topic for one in shown.partitions} <= {"orders"}
    listed = house.wait(transactions.list(ACME, pattern="t|__transaction-.*"))
    assert len(listed.transactions) == listed.total == 2
    assert house.wait(transactions.list(ACME, pattern=".*acme.*")).total == 0
    for session in (OTHER, PLAIN):
        assert house.wait(transactions.list(session)).total == 0


def test_producers_use_transactional_ids_of_their_tenant(house: House) -> None:
    transactions = house.gate.transactions
    arguments = {"timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    first = house.wait(transactions.initialise(ACME, transactional_id="t", **arguments))
    second = house.wait(transactions.initialise(OTHER, transactional_id="t", **arguments))
    assert first.producer_id != second.producer_id
    assert house.wait(transactions.describe(ACME, transactional_id="t")).transactional_id == "t"
    found = house.wait(transactions.find_coordinators(ACME, transactional_ids=["t"]))
    assert list(found) == ["t"]
    assert house.wait(transactions.new_producer(ACME)).producer_id > second.producer_id


def test_queries_of_tenants_do_not_meet(house: House) -> None:
    queries, transactions = house.gate.queries, house.gate.transactions
    for session in EVERYBODY:
        opened = house.wait(queries.open(session, query_id="q", run_name="r"))
        assert opened.query_id == "q"
    name = Attempt("q", opened.run, 0, "a").transactional_id
    house.topic(ACME)
    begun = house.wait(transactions.begin(ACME, transactional_id=name, timeout_ms=60_000))
    assert begun.transactional_id == name
    message = Addressed("orders", Outgoing(Record(None, b"in")), None)
    house.wait(transactions.publish(ACME, transaction_id=begun.id, messages=[message], now_ms=0))
    house.wait(transactions.prepare(ACME, transaction_id=begun.id, timeout_ms=None))
    refused(
        house,
        UnknownTransaction,
        lambda: queries.commit_epoch(
            OTHER, query_id="q", run=1, epoch=0, transaction_ids=[begun.id], is_last=False
        ),
    )
    house.wait(
        queries.commit_epoch(
            ACME,
            query_id="q",
            run=opened.run,
            epoch=0,
            transaction_ids=[begun.id],
            is_last=False,
        )
    )
    assert house.wait(queries.show(ACME, query_id="q")).epoch == 0
    assert house.wait(queries.show(OTHER, query_id="q")).epoch < 0


# The registry

TEXT = '{"type": "string"}'


def register(house: House, session: Session, subject: Subject) -> Any:
    request = Request(text=TEXT, kind=SchemaKind.AVRO)
    return house.wait(
        house.gate.schemas.register(
            session, subject=subject, request=request, normalize=False, force=False
        )
    )


def test_each_tenant_has_a_registry_of_its_own(house: House) -> None:
    schemas = house.gate.schemas
    for session in EVERYBODY:
        made = register(house, session, Subject(".", "orders-value"))
        assert (made.schema.id, str(made.subject)) == (1, "orders-value")
    register(house, ACME, Subject(".sales", "orders-value"))
    listing = {"with_deleted": False, "only_deleted": False, "offset": 0, "limit": 99}
    for prefix in ("", ":*:"):
        found = house.wait(schemas.list_subjects(ACME, prefix=prefix, **listing))
        assert sorted(found) == [":.sales:orders-value", "orders-value"]
        for session in (OTHER, PLAIN):
            assert house.wait(schemas.list_subjects(session, prefix=prefix, **listing)) == [
                "orders-value"
            ]
    pages: dict[str, Any] = {"prefix": ":*:", "match": "", "only_deleted": False, "limit": 1}
    for session in EVERYBODY:
        names: list[str] = []
        after, is_last = "", False
        while not is_last:
            [one], is_last = house.wait(schemas.subjects(session, **pages, after=after))
            names.append(after := one.subject)
        found = house.wait(schemas.list_subjects(session, prefix=":*:", **listing))
        assert names == [*found]
    contexts = house.wait(schemas.list_contexts(ACME, prefix="", offset=0, limit=9))
    assert contexts == [".", ".sales"]
    assert house.wait(schemas.list_contexts(OTHER, prefix="", offset=0, limit=9)) == ["."]
    assert house.wait(schemas.list_contexts(PLAIN, prefix="", offset=0, limit=9)) == ["."]
    guid = house.wait(schemas.show_schema(ACME, schema_id=1, subject=None, form="")).schema.guid
    assert sorted(house.wait(schemas.list_ids(ACME, guid=guid))) == [(".", 1), (".sales", 1)]
    assert house.wait(schemas.list_ids(PLAIN, guid=guid)) == [(".", 1)]
    places = house.wait(schemas.list_places(OTHER, schema_id=1, subject=None, with_deleted=False))
    assert places == [("orders-value", 1)]


def test_a_subject_without_a_context_is_not_found_in_other_tenants(house: House) -> None:
    register(house, ACME, Subject(".", "only-acme"))
    register(house, ACME, Subject(".sales", "only-acme"))
    for session in (OTHER, PLAIN):
        error = refused(
            house,
            SchemaRefused,
            partial(
                house.gate.schemas.show_version,
                session,
                subject=Subject(".", "only-acme"),
                number=1,
                with_deleted=True,
                form="",
            ),
        )
        assert "acme" not in str(error).replace("only-acme", "")
        refused(
            house,
            SchemaRefused,
            partial(
                house.gate.schemas.show_schema,
                session,
                schema_id=1,
                subject=Subject(".", "only-acme"),
                form="",
            ),
        )


def test_validation_uses_the_schemas_of_the_tenant(house: House) -> None:
    register(house, ACME, Subject(".", "orders-value"))
    change = [Change("schema_validation", ChangeKind.SET, "value")]
    for session in (ACME, OTHER):
        house.topic(session)
        house.wait(house.gate.configs.change_topic(session, topic="orders", changes=change))
    good = struct.pack(">bI", 0, 1) + b"\x02x"
    assert not isinstance(house.publish(ACME, good), GoQueueError)
    result = house.publish(OTHER, good)
    assert isinstance(result, GoQueueError)
    assert "~" not in str(result)


# The cluster


def test_the_whole_cluster_is_not_for_tenants(house: House) -> None:
    gate = house.gate
    for call in (
        lambda: gate.cluster.summary(ACME),
        lambda: gate.cluster.drain(ACME, node=0),
        lambda: gate.reassignments.placed(ACME),
        lambda: gate.configs.of_node(ACME),
        lambda: gate.configs.change_nodes(ACME, node=None, changes=[], throttles={}),
        lambda: gate.node.log_directory(ACME),
        lambda: gate.tenants.list(ACME, after="", limit=9),
        lambda: gate.tenants.create(ACME, tenant="mine"),
        lambda: gate.tenants.usage(ACME, tenant="other"),
    ):
        refused(house, AccessDenied, call)


def test_each_tenant_sees_its_own_cluster_id(house: House) -> None:
    seen = {house.gate.node.identity(one).cluster_id for one in (*EVERYBODY, OPERATOR)}
    assert len(seen) == 3
    assert house.node.broker.cluster_id in seen


def test_the_accounts_of_tenants_differ(house: House) -> None:
    assert house.gate.tenants.account(PLAIN) == ""
    accounts = {house.gate.tenants.account(one) for one in (ACME, OTHER)}
    assert len(accounts) == 2
    assert all(len(one) == 12 and one.isdecimal() for one in accounts)


# Access control


def test_rules_of_a_tenant_are_about_its_own_resources(house: House) -> None:
    acls = house.gate.acls
    rule = Acl(
        ResourceKind.TOPIC,
        PatternKind.LITERAL,
        "*",
        "User:alice",
        "*",
        Action.READ,
        Permission.ALLOW,
    )
    cluster = Acl(
        ResourceKind.CLUSTER,
        PatternKind.LITERAL,
        CLUSTER.name,
        "Role:admins",
        "*",
        Action.ALL,
        Permission.ALLOW,
    )
    for session in EVERYBODY:
        assert house.wait(acls.create(session, rules=[rule, cluster])) == [None, None]
        assert house.wait(acls.list(session, filter=AclFilter())).rules == [cluster, rule]
    assert len(house.wait(acls.list(OPERATOR, filter=AclFilter())).rules) == 6
    assert len(house.wait(acls.delete(ACME, filter=AclFilter()))) == 2
    assert not house.wait(acls.list(ACME, filter=AclFilter())).rules
    assert len(house.wait(acls.list(OPERATOR, filter=AclFilter())).rules) == 4


def test_rules_of_one_tenant_do_not_allow_in_another(house: House) -> None:
    node = Node(security__super_users="User:root", security__access_control="on")
    gate = node.broker.gate
    for tenant in ("acme", "other"):
        node.wait(gate.tenants.create(OPERATOR, tenant=tenant, admin=f"{tenant}-admin"))
    everything = Acl(
        ResourceKind.TOPIC,
        PatternKind.LITERAL,
        "*",
        "User:*",
        "*",
        Action.ALL,
        Permission.ALLOW,
    )
    node.wait(gate.acls.create(OPERATOR, rules=[everything]))
    with pytest.raises(AccessDenied):
        node.wait(gate.topics.create(ACME, name="orders"))
    admin = Session("http", principal="User:acme-admin", tenant="acme")
    node.wait(gate.topics.create(admin, name="orders"))
    node.wait(gate.acls.create(admin, rules=[everything]))
    assert gate.topics.get(ACME, topic="orders").name == "orders"
    with pytest.raises(AccessDenied):
        node.wait(gate.topics.create(OTHER, name="orders"))
    outside = Session("http", principal="User:acme-admin")
    with pytest.raises(InvalidTopicName):
        node.wait(gate.topics.create(outside, name="~acme~x"))


def test_an_administrator_who_cannot_exist_is_refused_before_the_tenant_is_created() -> None:
    node = Node(security__super_users="User:root", security__access_control="on")
    tenants = node.broker.gate.tenants
    with pytest.raises(InvalidCredential, match="cannot be a user name"):
        node.wait(tenants.create(OPERATOR, tenant="acme", admin="User:boss"))
    node.wait(tenants.create(OPERATOR, tenant="acme", admin="boss"))


def test_rules_of_the_default_tenant_deny_nothing_in_another(house: House) -> None:
    node = Node(security__super_users="User:root", security__access_control="on")
    gate = node.broker.gate
    node.wait(gate.tenants.create(OPERATOR, tenant="acme", admin="alice"))
    denied = Acl(
        ResourceKind.TOPIC,
        PatternKind.LITERAL,
        "*",
        "User:*",
        "*",
        Action.ALL,
        Permission.DENY,
    )
    node.wait(gate.acls.create(OPERATOR, rules=[denied]))
    assert node.wait(gate.transactions.new_producer(ACME)).producer_id >= 0
    with pytest.raises(AccessDenied):
        node.wait(gate.transactions.new_producer(PLAIN))
    node.wait(gate.topics.create(ACME, name="orders"))
    node.wait(gate.acls.create(ACME, rules=[denied]))
    with pytest.raises(AccessDenied):
        node.wait(gate.topics.delete(ACME, topic="orders"))


def test_roles_belong_to_tenants(house: House) -> None:
    acls = house.gate.acls
    for session in EVERYBODY:
        made = house.wait(acls.create_role(session, role="writers", members=[session.principal]))
        assert made.name == "writers"
    for session in EVERYBODY:
        assert acls.role(session, role="writers").members == (session.principal,)
        assert [one.name for one in acls.roles(session, limit=9).roles] == ["writers"]


def test_what_one_may_do_is_about_the_own_tenant(house: House) -> None:
    resource = Resource(ResourceKind.TOPIC, "orders")
    allowed = house.gate.access.allowed(ACME, resource=resource, actions=[Action.READ])
    assert list(allowed) == [Action.READ]


# The life of a tenant


def test_a_tenant_that_may_only_read(house: House) -> None:
    house.topic(ACME)
    house.publish(ACME, b"x")
    grants = house.gate.grants(ACME)
    assert grants.writer("orders", 0) is grants.writer("orders", 0)
    tenants = house.gate.tenants
    house.wait(tenants.set_state(OPERATOR, tenant="acme", state=TenantState.READ_ONLY))
    assert house.read(ACME) == [("orders", b"x")]
    [receipt] = house.receive(ACME).receipts
    assert house.wait(house.gate.queues.ack(ACME, group="work", receipts=[receipt])) == [None]
    refused(house, TenantSuspended, lambda: house.publish(ACME, b"y"))
    refused(house, TenantSuspended, lambda: house.gate.topics.create(ACME, name="more"))
    refused(house, TenantSuspended, lambda: grants.writer("orders", 0))
    assert grants.reader("orders", 0)
    house.topic(OTHER)
    house.wait(tenants.set_state(OPERATOR, tenant="acme", state=TenantState.ACTIVE))
    house.publish(ACME, b"y")


def test_a_suspended_tenant_may_do_nothing(house: House) -> None:
    house.topic(ACME)
    tenants = house.gate.tenants
    house.wait(tenants.set_state(OPERATOR, tenant="acme", state=TenantState.SUSPENDED))
    refused(house, TenantSuspended, lambda: house.gate.topics.all(ACME))
    refused(house, TenantSuspended, lambda: house.read(ACME))
    refused(house, TenantSuspended, lambda: house.gate.grants(ACME).reader("orders", 0))
    house.wait(tenants.set_state(OPERATOR, tenant="acme", state=TenantState.ACTIVE))
    assert house.read(ACME) == []


def test_users_of_a_tenant_that_is_gone_may_do_nothing(house: House) -> None:
    ghost = Session("http", principal="User:ghost", tenant="gone")
    refused(house, TenantSuspended, lambda: house.gate.topics.all(ghost))
    refused(house, TenantSuspended, lambda: house.gate.grants(ghost).reader("orders", 0))


def test_create_show_list_and_usage(house: House) -> None:
    tenants = house.gate.tenants
    with pytest.raises(TenantExists):
        house.wait(tenants.create(OPERATOR, tenant="acme"))
    page = tenants.list(OPERATOR, after="", limit=1)
    assert ([one.name for one in page.tenants], page.next_cursor) == (["acme"], "acme")
    assert [one.name for one in tenants.list(OPERATOR, after="acme", limit=9).tenants] == ["other"]
    house.topic(ACME)
    house.publish(ACME, b"x" * 100)
    house.receive(ACME)
    house.wait(house.gate.users.create(OPERATOR, user="u", password=None, tenant="acme"))
    register(house, ACME, Subject(".", "s"))
    usage = house.wait(tenants.usage(OPERATOR, tenant="acme"))
    assert usage == house.wait(tenants.own_usage(ACME))
    assert (usage.topics, usage.partitions, usage.groups, usage.users) == (1, 1, 1, 1)
    assert (usage.subjects, usage.scheduled, usage.queues) == (1, 0, 0)
    assert usage.stored_bytes > 100
    assert house.wait(tenants.usage(OPERATOR, tenant="other")).topics == 0
    assert tenants.show(OPERATOR, tenant="acme").user_count == 1
    with pytest.raises(UnknownTenant):
        house.wait(house.gate.users.create(OPERATOR, user="v", password=None, tenant="nope"))


def test_a_tenant_in_use_is_deleted_by_a_purge_only(house: House) -> None:
    for session in (ACME, OTHER):
        house.topic(session)
        house.publish(session, b"x")
        house.receive(session)
        register(house, session, Subject(".", "s"))
        register(house, session, Subject(".sales", "s"))
        house.wait(house.gate.named_queues.create(session, spec=NamedQueueSpec("jobs")))
        later = Outgoing(Record(None, b"x"), Attributes(delay_ms=60_000))
        house.wait(house.gate.records.publish(session, topic="orders", records=[later]))
        assert house.wait(house.gate.tenants.own_usage(session)).scheduled == 1
    house.wait(house.gate.users.create(OPERATOR, user="u", password=None, tenant="acme"))
    tenants = house.gate.tenants
    with pytest.raises(TenantInUse):
        house.wait(tenants.delete(OPERATOR, tenant="acme"))
    assert house.wait(tenants.delete(OPERATOR, tenant="acme", purge=True)) is None
    house.node.run_until(lambda: "acme" not in house.node.broker.tenants.all)
    assert "u" not in house.node.broker.identities.users
    names = [one.name for one in house.node.broker.topics]
    assert not [one for one in names if "acme" in one]
    assert house.read(OTHER) == [("orders", b"x")]
    house.wait(tenants.create(OPERATOR, tenant="acme"))
    usage = house.wait(tenants.usage(OPERATOR, tenant="acme"))
    assert usage == type(usage)()
    assert house.wait(tenants.usage(OPERATOR, tenant="other")).scheduled == 1


def test_a_purge_that_has_nothing_to_do_is_no_unknown_tenant(house: House) -> None:
    house.wait(house.gate.users.create(OPERATOR, user="u", password=None, tenant="acme"))
    assert house.wait(house.gate.tenants.delete(OPERATOR, tenant="acme", purge=True)) is None
    house.node.run_until(lambda: "acme" not in house.node.broker.tenants.all)


def test_a_purge_continues_after_a_restart(house: House) -> None:
    house.topic(ACME)
    node = house.node
    broker = node.broker
    broker._tenant_purges.stop()
    house.wait(house.gate.tenants.delete(OPERATOR, tenant="acme", purge=True))
    node.restart_after_crash()
    refused(house, TenantSuspended, lambda: house.gate.topics.all(ACME))
    house.gate.policy = Open()
    assert "~" not in repr([one.name for one in house.gate.topics.all(PLAIN)])
    assert node.broker.tenants.all["acme"].state is TenantState.DELETING
    node.run_until(lambda: "acme" not in node.broker.tenants.all)
    assert node.broker.topics.find("~acme~orders") is None


def test_a_name_that_groups_already_begin_with_is_refused() -> None:
    node = Node()
    gate = node.broker.gate
    node.wait(gate.groups.put_queue(PLAIN, group="~early~bird", settings=None))
    with pytest.raises(TenantInUse):
        node.wait(gate.tenants.create(OPERATOR, tenant="early"))
