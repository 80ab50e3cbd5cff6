"""Whatever reads records is charged for what it reads, and searches of tenants take turns."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import pytest

from goqueue.broker.gate.areas.dead_letters import LetterFilter, RedriveOrder
from goqueue.broker.gate.areas.journeys import Selection
from goqueue.broker.gate.areas.records import EARLIEST, Outgoing, RecordFilter, Span
from goqueue.broker.gate.operation import OPERATIONS, Operation
from goqueue.broker.reading.searching import STEPS_AT_ONCE, WAITING_MAX, _Turns
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.attributes import Attributes
from goqueue.model.batch import Record
from goqueue.model.errors import QuotaExceeded, RequestTimedOut
from tests.unit.broker.node import Node
from tests.unit.broker.quotas.test_quotas import ACME, OPERATOR, limit

RATE = 1_000
SIZE = 20_000


@pytest.fixture
def node() -> Node:
    """A node whose tenant has messages, none of which has the key `k`, and a queue group."""
    node = Node()
    gate, wait = node.broker.gate, node.wait
    wait(gate.tenants.create(OPERATOR, tenant="acme"))
    for name in ("orders", "orders.dlq"):
        wait(gate.topics.create(ACME, name=name, partition_count=1))
        records = [Record(b"other", bytes(SIZE // 10)) for _ in range(10)]
        wait(gate.records.publish(ACME, topic=name, records=records))
    received = gate.queues.receive(
        ACME,
        group="work",
        topic="orders",
        consumer="c",
        messages_max=1,
        wait_ms=0,
        visibility_ms=600_000,
        cancellation=Cancellation(),
    )
    wait(received)
    node.run_for(5_000)  # Journeys are written.
    return node


def search(node: Node) -> Promise[Any]:
    return node.broker.gate.records.search(
        ACME,
        topic="orders",
        spans=[Span(0, EARLIEST)],
        wanted=RecordFilter(key=b"k"),
        limit=10,
        cancellation=Cancellation(),
    )


def peek(node: Node) -> Promise[Any]:
    return node.broker.gate.queues.peek(
        ACME, group="work", topic="orders", partition=None, offset=None, limit=10
    )


def dead_letters(node: Node, key: bytes | None = None) -> Promise[Any]:
    return node.broker.gate.dead_letters.list(
        ACME,
        topic="orders",
        dead_letter_topic=None,
        filter=LetterFilter(key=key),
        limit=10,
        positions=None,
    )


def found_dead_letters(node: Node) -> Promise[Any]:
    return dead_letters(node, b"k")


def summary_of_dead_letters(node: Node) -> Promise[Any]:
    return node.broker.gate.dead_letters.summary(ACME, topic="orders", dead_letter_topic=None)


def preview_of_a_redrive(node: Node) -> Promise[Any]:
    return node.broker.gate.dead_letters.preview(
        ACME,
        topic="orders",
        dead_letter_topic=None,
        order=RedriveOrder(filter=LetterFilter(key=b"k"), target_topic="orders"),
    )


def scheduled(node: Node) -> Promise[Any]:
    later = Outgoing(Record(b"k", bytes(SIZE)), Attributes(delay_ms=600_000))
    publish = node.broker.gate.records.publish(ACME, topic="orders", records=[later])
    schedule_id = node.wait(publish)[0].schedule_id  # type: ignore[union-attr]
    return node.broker.gate.schedules.show(ACME, schedule_id=schedule_id)


def journeys(node: Node) -> Promise[Any]:
    return node.broker.gate.journeys.list(
        ACME, selection=Selection(topic="orders"), limit=10, cancellation=Cancellation()
    )


def found_journeys(node: Node) -> Promise[Any]:
    return node.broker.gate.journeys.list(
        ACME,
        selection=Selection(topic="orders", key=b"k"),
        limit=10,
        cancellation=Cancellation(),
    )


def journey(node: Node) -> Promise[Any]:
    return node.broker.gate.journeys.get(
        ACME, topic="orders", partition=0, offset=0, cancellation=Cancellation()
    )


@pytest.mark.parametrize(
    "read",
    [
        search,
        peek,
        dead_letters,
        found_dead_letters,
        summary_of_dead_letters,
        preview_of_a_redrive,
        scheduled,
        journeys,
        found_journeys,
        journey,
    ],
    ids=lambda f: f.__name__,
)
def test_what_a_call_reads_is_charged(node: Node, read: Callable[[Node], Promise[Any]]) -> None:
    rate = 10 if read in (journeys, journey) else RATE  # events are small
    limit(node, {"tenant": "acme"}, consumer_byte_rate=rate)
    node.wait(read(node))
    with pytest.raises(QuotaExceeded):
        node.wait(read(node))
    node.run_for(600_000)
    node.wait(read(node))


def test_a_search_reads_no_more_than_its_client_may_in_a_second(node: Node) -> None:
    for _ in range(20):
        records = [Record(b"other", bytes(100_000)) for _ in range(10)]
        node.wait(node.broker.gate.records.publish(ACME, topic="orders", records=records))
    limit(node, {"tenant": "acme"}, consumer_byte_rate=1_000_000)
    page = node.wait(search(node))
    assert page.read_bytes < 5_000_000
    assert page.places, "there is more to read"


@pytest.mark.parametrize("limited", [True, False])
def test_dead_letters_are_examined_until_their_reader_has_to_wait(
    node: Node, limited: bool
) -> None:
    for _ in range(20):
        records = [Record(b"other", bytes(100_000)) for _ in range(10)]
        node.wait(node.broker.gate.records.publish(ACME, topic="orders.dlq", records=records))
    if limited:
        limit(node, {"tenant": "acme"}, consumer_byte_rate=1_000_000)
    summary = node.wait(summary_of_dead_letters(node))
    node.run_for(60_000)
    preview = node.wait(preview_of_a_redrive(node))
    node.run_for(60_000)
    page = node.wait(found_dead_letters(node))
    complete = (summary.is_complete, preview.is_complete, page.is_last, page.is_counted)
    assert complete == (not limited,) * 4
    examined = (summary.letters, preview.passed_over, page.positions[0])
    assert all(10 < one < 40 if limited else one == 210 for one in examined)
    if limited:
        node.run_for(60_000)
        rest = node.broker.gate.dead_letters.list(
            ACME,
            topic="orders",
            dead_letter_topic=None,
            filter=LetterFilter(key=b"k"),
            limit=10,
            positions=page.positions,
        )
        assert node.wait(rest).positions[0] > page.positions[0], "the next page goes on"


# Searches


def test_searches_of_one_tenant_do_not_keep_out_those_of_others() -> None:
    node = Node()
    turns, order = _Turns(node.broker.clock), []

    def step(name: str) -> Callable[[], Any]:
        return lambda: order.append(name)

    started = [turns.run("acme", step("acme")) for _ in range(WAITING_MAX)]
    started += [turns.run("acme", step("acme")) for _ in range(STEPS_AT_ONCE)]
    with pytest.raises(RequestTimedOut):
        turns.run("acme", step("acme"))
    started += [turns.run("other", step("other")) for _ in range(3)]
    for one in started:
        node.wait(one)
    assert order[:12].count("other") == 3


# Declarations

# They charge themselves: when messages are leased, page by page, or as a part of another operation.
CHARGED_INSIDE = {
    "named_queues.receive",
    "queues.ack_and_receive",
    "queues.receive",
    "records.search_partition",
    "share_groups.fetch",
}


def returns_records(declared: Operation) -> bool:
    return _has_record(typing.get_type_hints(declared.perform).get("return"), set())


def _has_record(kind: Any, seen: set[Any]) -> bool:
    """Whether values of a type can contain records."""
    if kind is Record:
        return True
    parts = typing.get_args(kind)
    if isinstance(kind, type) and kind not in seen and not parts:
        seen.add(kind)
        shown = [one.fget for one in vars(kind).values() if isinstance(one, property)]
        try:
            returned = [typing.get_type_hints(one).get("return") for one in shown]
            parts = (*typing.get_type_hints(kind).values(), *returned)
        except NameError:  # A name that is imported for type checkers only.
            return False
    return any(_has_record(one, seen) for one in parts)


def test_every_operation_that_returns_records_says_what_it_charges() -> None:
    returning = {name for name, one in OPERATIONS.items() if returns_records(one)}
    assert {"records.read", "queues.peek", "dead_letters.list", "polling.poll"} <= returning
    uncharged = {name for name in returning if OPERATIONS[name].charges is None}
    assert uncharged <= CHARGED_INSIDE
