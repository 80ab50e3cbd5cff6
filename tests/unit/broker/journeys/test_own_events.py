"""Events that follow from no log: each is written, whatever the owners of the journal forget."""

from __future__ import annotations

import pytest

from goqueue.broker.journeys import outlets, shards
from goqueue.broker.journeys.pieces import Piece, Results
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotCoordinator
from goqueue.model.names import TopicPartition
from goqueue.model.tenants import TopicName
from goqueue.tracing.events import Kind
from tests.unit.broker.journeys.test_recording import FLUSHED_MS, JourneyNode

MINUTE_MS = 60_000


@pytest.fixture
def node() -> JourneyNode:
    node = JourneyNode()
    node.create("busy")
    node.create("quiet")
    return node


def refuse(node: JourneyNode, topic: str, offset: int = 0) -> None:
    """Refuse a duplicate of a message."""
    assert node.broker.journeys is not None
    name = TopicPartition(TopicName(topic), 0)
    node.broker.journeys.recorder.deduplicated(name, (offset, offset + 1))


def refusals(node: JourneyNode, topic: str) -> int:
    return node.kinds(0, topic).count(Kind.DEDUPLICATED)


def test_events_of_a_quiet_topic_are_written_while_another_one_is_busy(
    node: JourneyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SNAPSHOT_RECORDS_MIN", 10)
    assert node.broker.journeys is not None
    owners = node.broker.journeys.owners
    numbers = {owners.number_of(TopicPartition(TopicName(one), 0)) for one in ("busy", "quiet")}
    assert len(numbers) == 2
    node.send("a", topic="busy")
    node.send("a", topic="quiet")
    for round_number in range(1, 4):
        refuse(node, "quiet")
        refuse(node, "quiet")
        for minute in range(120):
            refuse(node, "busy")
            if not minute % 5:
                node.send("b", topic="quiet")  # The owner writes its cursors again and again.
            node.run_for(MINUTE_MS)
        assert refusals(node, "quiet") == 2 * round_number
    assert refusals(node, "busy") == 360


def test_pieces_that_an_owner_refuses_are_written_under_a_new_run(node: JourneyNode) -> None:
    assert node.broker.journeys is not None
    owners = node.broker.journeys.owners
    node.send("a", topic="quiet")
    refuse(node, "quiet")
    assert refusals(node, "quiet") == 1
    # As if the owner had forgotten the run.
    number = owners.number_of(TopicPartition(TopicName("quiet"), 0))
    shard = owners.shards.owned[number]
    topic_id = node.broker.topics.get("quiet").id
    shard._positions = {one: at for one, at in shard._positions.items() if one[0] == topic_id}
    for _ in range(3):
        refuse(node, "quiet")
        node.run_for(1_000)  # Several pieces wait, or are on their way.
    assert refusals(node, "quiet") == 4


def test_events_are_kept_while_what_can_be_derived_is_dropped(
    node: JourneyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.send("a", topic="quiet")
    refuse(node, "quiet")
    assert refusals(node, "quiet") == 1
    with monkeypatch.context() as away:
        _take_away(node, away)
        away.setattr(outlets, "QUEUE_BYTES_MAX", 1_000)
        for _ in range(20):
            node.send("b", topic="busy")
            refuse(node, "quiet")
            node.run_for(FLUSHED_MS)
    node.run_for(5_000)
    assert refusals(node, "quiet") == 21
    for offset in range(20):
        assert node.kinds(offset, "busy") == [Kind.RECEIVED, Kind.STORED]


def test_events_that_are_too_many_to_wait_leave_a_mark(
    node: JourneyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node.broker.journeys is not None
    waiting = node.broker.journeys.recorder.outlets
    node.send(*"abcdefgh", topic="quiet")
    refuse(node, "quiet")
    assert refusals(node, "quiet") == 1
    with monkeypatch.context() as away:
        _take_away(node, away)
        away.setattr(outlets, "OWN_BYTES_MAX", 2_000)
        for turn in range(100):
            refuse(node, "quiet", 2 + turn % 4)
            node.run_for(FLUSHED_MS)
            assert waiting.size <= 2_500
    node.run_for(5_000)
    for offset in range(2, 6):
        assert Kind.RECOVERED in node.kinds(offset, "quiet")
    [marked] = {event for event in node.events(3, "quiet") if event.kind is Kind.RECOVERED}
    assert (marked.first, marked.end, marked.details.group) == (2, 6, "")
    assert marked.details.reason
    for offset in (0, 1, 6, 7):
        assert Kind.RECOVERED not in node.kinds(offset, "quiet")
    refuse(node, "quiet", 7)
    assert node.kinds(7, "quiet").count(Kind.DEDUPLICATED) == 1


def _take_away(node: JourneyNode, away: pytest.MonkeyPatch) -> None:
    """Let no owner of the journal answer."""

    def unavailable(number: int, pieces: list[Piece]) -> Promise[Results]:
        refused: Promise[Results] = Promise()
        refused.reject(NotCoordinator("away"))
        return refused

    assert node.broker.journeys is not None
    away.setattr(node.broker.journeys.owners, "write", unavailable)
