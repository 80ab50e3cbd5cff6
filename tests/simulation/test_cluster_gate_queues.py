"""Queue groups, named queues and dead letters, requested at any node of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.broker.gate import Gate
from goqueue.broker.gate.areas.dead_letters import LetterFilter, Redrive, RedriveOrder
from goqueue.broker.gate.areas.named_queues import (
    NamedQueue,
    NamedQueueSpec,
    Posted,
    Posting,
    QueueMessages,
    ReceiveAttempt,
)
from goqueue.broker.gate.areas.queues import Received
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.batch import Record
from goqueue.model.errors import (
    InvalidReceipt,
    PurgeInProgress,
    QueueDeletedRecently,
    RedriveEnded,
    UnknownGroup,
    UnknownQueue,
)
from goqueue.model.session import Session
from goqueue.wire.http.handlers.receiving import received_json
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

SESSION = Session("test", principal="User:alice")
LATER_MS = 60_000


@pytest.fixture(scope="module")
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    return world


@pytest.fixture(params=[1, 2, 3])
def entry(request: pytest.FixtureRequest, world: ClusterWorld) -> ClusterNode:
    return world.nodes[request.param]


@pytest.fixture
def gate(entry: ClusterNode) -> Gate:
    return entry.broker.gate


def receive(gate: Gate, group: str, topic: str, **more: Any) -> Promise[Received]:
    arguments: dict[str, Any] = {
        "consumer": "anna",
        "messages_max": 10,
        "wait_ms": 5_000,
        "visibility_ms": LATER_MS,
        "cancellation": Cancellation(),
        **more,
    }
    return gate.queues.receive(SESSION, group=group, topic=topic, **arguments)


def receipts(received: Received) -> list[str]:
    return [one.delivery.receipt for one in received]


def values(received: Received) -> list[bytes | None]:
    return [one.record.value for one in received]


def publish(world: ClusterWorld, topic: str, *texts: bytes) -> None:
    records = [Record(b"k", text, (("h", b"v"),)) for text in texts]
    world.wait(world.nodes[1].broker.publish(topic, records))


def each_group(entry: ClusterNode) -> list[str]:
    """Enough names that every node owns some of the groups."""
    return [f"group-{entry.number}-{number}" for number in range(6)]


def with_topic(world: ClusterWorld, gate: Gate, group: str) -> dict[str, Any]:
    """A group that is there, and a new topic of its own."""
    topic = f"topic-of-{group}"
    world.create(topic)
    named = {"group": group, "topic": topic}
    assert not world.wait(receive(gate, **named, wait_ms=0))
    return named


# Queue groups


def test_every_node_serves_queue_groups(
    world: ClusterWorld, entry: ClusterNode, gate: Gate
) -> None:
    owners = set()
    for group in each_group(entry):
        topic = with_topic(world, gate, group)["topic"]
        owners.add(entry.broker.queues.groups.owner_of(group))
        publish(world, topic, b"a", b"b")
        found = world.wait(receive(gate, group, topic))
        assert sorted(one or b"" for one in values(found)) == [b"a", b"b"]
        assert b'"value":"a"' in received_json(found, "utf8")
        first, second = receipts(found)

        def call(name: str, *receipts: str, group: str = group, **more: Any) -> list[Any]:
            operation = getattr(gate.queues, name)
            outcomes: list[Any] = world.wait(
                operation(SESSION, group=group, receipts=receipts, **more)
            )
            return outcomes

        assert call("extend", first, second, visibility_ms=LATER_MS) == [None, None]
        stats = world.wait(gate.queues.stats(SESSION, group=group, topic=topic))
        assert (stats.in_flight, stats.ready) == (2, 0)
        assert call("give_back", first) == [None]
        [first] = receipts(world.wait(receive(gate, group, topic)))
        assert call("nack", first, delay_ms=0) == [None]
        again = world.wait(receive(gate, group, topic))
        done, invalid = call("ack", *receipts(again), "nonsense")
        assert done is None
        assert isinstance(invalid, InvalidReceipt)
        assert call("reject", second, reason="poison") == [None]
    assert len(owners) > 1


def test_every_node_inspects_and_rewinds(
    world: ClusterWorld, entry: ClusterNode, gate: Gate
) -> None:
    for group in each_group(entry):
        named = with_topic(world, gate, f"{group}-rewound")
        publish(world, named["topic"], b"a", b"b", b"c")
        rewound = world.wait(gate.queues.rewind(SESSION, **named, to="earliest"))
        assert rewound == {0: 0}
        peek = gate.queues.peek(SESSION, **named, partition=None, offset=None, limit=10)
        assert [one.record.value for one in world.wait(peek) if one.record] == [b"a", b"b", b"c"]
        assert world.wait(gate.queues.rewind(SESSION, **named, offsets={0: 1})) == {0: 1}
        assert values(world.wait(receive(gate, **named, messages_max=1))) == [b"b"]
        assert world.wait(gate.queues.rewind(SESSION, **named, time_ms=0)) == {0: 0}
        assert world.wait(gate.queues.rewind(SESSION, **named, to="latest")) == {0: 3}
        assert world.wait(gate.queues.purge(SESSION, **named)) == {0: 3}
        lanes = world.wait(gate.queues.lanes(SESSION, topic=named["topic"]))
        assert [sum(one) for one in lanes.stored] == [3]
        assert set(lanes.groups) == {named["group"]}


def test_acks_come_before_a_receive(world: ClusterWorld, entry: ClusterNode, gate: Gate) -> None:
    for group in each_group(entry):
        named = with_topic(world, gate, f"{group}-acking")
        publish(world, named["topic"], b"a", b"b")
        first = world.wait(receive(gate, **named, messages_max=1))
        outcomes, received = world.wait(
            gate.queues.ack_and_receive(
                SESSION,
                **named,
                receipts=[*receipts(first), "nonsense"],
                consumer="anna",
                messages_max=10,
                wait_ms=0,
                visibility_ms=None,
                cancellation=Cancellation(),
            )
        )
        assert [type(one) for one in outcomes] == [type(None), InvalidReceipt]
        assert values(received) == [b"b"]


def test_a_receive_that_is_cancelled_leases_nothing(
    world: ClusterWorld, entry: ClusterNode, gate: Gate
) -> None:
    for group in each_group(entry):
        named = with_topic(world, gate, f"{group}-left")
        cancellation = Cancellation()
        waiting = receive(gate, **named, wait_ms=20_000, cancellation=cancellation)
        world.run_for(100)
        cancellation.cancel()
        assert not world.wait(waiting)
        publish(world, named["topic"], b"a")
        assert len(world.wait(receive(gate, **named))) == 1


def test_a_group_that_is_not_there_is_said_to_be_unknown(world: ClusterWorld, gate: Gate) -> None:
    for group in ("nobody", "none"):
        with pytest.raises(UnknownGroup):
            world.wait(gate.queues.ack(SESSION, group=group, receipts=["x"]))


# Named queues


def make(world: ClusterWorld, gate: Gate, name: str, **more: Any) -> NamedQueue:
    return world.wait(gate.named_queues.create(SESSION, spec=NamedQueueSpec(name, **more)))


def posting(text: str, deduplication_id: str | None = None) -> Posting:
    record = Record(b"k", text.encode())
    return Posting(record, f"id-{text}", deduplication_id=deduplication_id)


def take(
    world: ClusterWorld, gate: Gate, queue: NamedQueue, attempt: ReceiveAttempt | None = None
) -> QueueMessages:
    return world.wait(
        gate.named_queues.receive(
            SESSION,
            queue=queue,
            consumer="anna",
            messages_max=10,
            wait_ms=0,
            visibility_ms=LATER_MS,
            attempt=attempt,
            cancellation=Cancellation(),
        )
    )


def others(world: ClusterWorld, entry: ClusterNode) -> list[Gate]:
    return [one.broker.gate for one in world.nodes.values() if one is not entry]


def test_every_node_serves_named_queues(
    world: ClusterWorld, entry: ClusterNode, gate: Gate
) -> None:
    area = gate.named_queues
    for number in range(4):
        queue = make(world, gate, f"queue-{entry.number}-{number}", attributes={"A": "1"})
        assert make(world, gate, queue.name, attributes={"A": "1"}) == queue
        changed = world.wait(area.change(SESSION, queue=queue, attributes={"A": "2"}))
        assert changed.attributes == {"A": "2"}
        for other in others(world, entry):
            found = world.wait(other.named_queues.find_latest(SESSION, name=queue.name))
            assert found is not None
            assert queue.name in [one.name for one in world.wait(other.named_queues.list(SESSION))]
        sent = world.wait(area.send(SESSION, queue=queue, postings=[posting("a"), posting("b")]))
        assert [one.message_id for one in sent.results if isinstance(one, Posted)] == [
            "id-a",
            "id-b",
        ]
        assert world.wait(area.count(SESSION, queue=queue)) == (2, 0, 0)
        topic_id, received, _ = take(world, gate, queue)
        assert topic_id == entry.broker.topics.get(queue.topic).id
        assert len(received) == 2
        first, second = receipts(received)
        hidden = area.change_visibility(
            SESSION, queue=queue, receipts=[first], visibility_ms=0, total_ms_max=LATER_MS
        )
        assert world.wait(hidden) == [None]
        deleted = area.delete_messages(SESSION, queue=queue, receipts=[second, "nonsense"])
        assert [type(one) for one in world.wait(deleted)] == [type(None), InvalidReceipt]
        assert world.wait(area.count(SESSION, queue=queue)) == (1, 0, 0)
        world.wait(area.purge(SESSION, queue=queue, pause_ms=LATER_MS))
        assert world.wait(area.count(SESSION, queue=queue)) == (0, 0, 0)


def test_what_an_owner_remembers_counts_at_every_node(
    world: ClusterWorld, entry: ClusterNode, gate: Gate
) -> None:
    for number in range(3):
        name = f"remembered-{entry.number}-{number}"
        queue = make(world, gate, name, is_ordered=True, queue_settings={"key_order": True})
        area = gate.named_queues
        sent = area.send(SESSION, queue=queue, postings=[posting("a", "one")])
        [first] = world.wait(sent).results
        attempt = ReceiveAttempt("try", b"note")
        _, received, _ = take(world, gate, queue, attempt)
        assert values(received) == [b"a"]
        for other in others(world, entry):
            again = other.named_queues.send(SESSION, queue=queue, postings=[posting("b", "one")])
            [second] = world.wait(again).results
            assert isinstance(first, Posted)
            assert second == Posted(first.message_id, first.sequence, is_duplicate=True)
            _, repeated, note = take(world, other, queue, ReceiveAttempt("try", b"other"))
            assert receipts(repeated) == receipts(received)
            assert note == b"note"
        world.wait(area.purge(SESSION, queue=queue, pause_ms=LATER_MS))
        for other in others(world, entry):
            with pytest.raises(PurgeInProgress):
                world.wait(other.named_queues.purge(SESSION, queue=queue, pause_ms=LATER_MS))
        world.wait(area.delete(SESSION, queue=queue, rest_ms=LATER_MS))
        for other in others(world, entry):
            with pytest.raises(QueueDeletedRecently):
                make(world, other, name)
            with pytest.raises(UnknownQueue):
                take(world, other, queue)


def test_every_node_moves_messages_between_queues(
    world: ClusterWorld, entry: ClusterNode, gate: Gate
) -> None:
    area = gate.named_queues
    source = make(world, gate, f"source-{entry.number}")
    target = make(world, gate, f"target-{entry.number}")
    world.wait(area.send(SESSION, queue=source, postings=[posting("a")]))
    move = world.wait(area.move(SESSION, queue=source, target=target.name, rate_per_s=None))

    def is_done() -> bool:
        [shown] = world.wait(area.moves(SESSION, queue=source))
        return shown.id == move.id and shown.state == "done"

    for _ in range(100):
        if is_done():
            break
        world.run_for(100)
    assert is_done()
    assert values(take(world, gate, target).received) == [b"a"]
    with pytest.raises(RedriveEnded):
        world.wait(area.cancel_move(SESSION, queue=source, move_id=move.id))


# Dead letters


def test_every_node_answers_for_dead_letters(
    world: ClusterWorld, entry: ClusterNode, gate: Gate
) -> None:
    group = f"shop-{entry.number}"
    topic = with_topic(world, gate, group)["topic"]
    publish(world, topic, b"a", b"b")
    held = receipts(world.wait(receive(gate, group, topic)))
    world.wait(gate.queues.reject(SESSION, group=group, receipts=held, reason="poison"))
    letters = gate.dead_letters
    where: dict[str, Any] = {"topic": topic, "dead_letter_topic": None}
    page = world.wait(
        letters.list(SESSION, **where, filter=LetterFilter(), limit=10, positions=None)
    )
    assert (page.dead_letter_topic, page.total) == (f"{topic}.dlq", 2)
    assert [(one.record.value, one.origin and one.origin.reason) for one in page.letters] == [
        (b"a", "poison"),
        (b"b", "poison"),
    ]
    order = RedriveOrder(rate_per_s=1)
    preview = world.wait(letters.preview(SESSION, **where, order=order))
    assert (preview.matching, preview.is_complete, preview.dead_letter_topic) == (
        2,
        True,
        f"{topic}.dlq",
    )
    job = world.wait(letters.redrive(SESSION, **where, order=order))

    def call(name: str) -> Redrive:
        operation = getattr(letters, name)
        changed: Redrive = world.wait(operation(SESSION, topic=topic, redrive_id=job.id))
        return changed

    assert call("pause_redrive").state == "paused"
    assert call("resume_redrive").state == "running"
    assert call("show_redrive").id == job.id
    assert call("cancel_redrive").state == "cancelled"
    assert [one.id for one in world.wait(letters.redrives(SESSION, topic=topic))] == [job.id]
