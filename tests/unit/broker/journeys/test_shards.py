"""The owner of a part of the journal: each span of a source is accepted once and in order."""

from __future__ import annotations

import pytest

from goqueue.broker.journeys.pieces import FENCED, UNKNOWN, WRITTEN, Piece
from goqueue.broker.journeys.queries import JournalQuery
from goqueue.broker.journeys.searching import JournalSearch
from goqueue.broker.journeys.shards import SNAPSHOT_RECORDS_MIN, JourneyShard, Written
from goqueue.broker.journeys.sources import piece_of
from goqueue.loop.promise import Cancellation, promised
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import CoordinatorLoading, NotCoordinator, UpgradeInProgress
from goqueue.model.names import JOURNEYS_TOPIC
from goqueue.tracing.events import Cursor, Details, Event, Kind, Place, Source, Span
from tests.simulation.journal import entries
from tests.unit.broker.node import Node

TOPIC_ID = b"t" * 16
PLACE = Place("orders", TOPIC_ID, 0)
SOURCE = Source(TOPIC_ID, 0)
RECEIVED = Details(Kind.RECEIVED, 1)


def piece(first: int, end: int, *, epoch: int = 0, reset_from: int = -1) -> Piece:
    is_reset = reset_from >= 0
    span = Span(SOURCE, epoch, first, end, is_reset)
    event = Event(RECEIVED, first, max(end, first + 1), 5, 5)
    return piece_of(span, {PLACE: [event]}, reset_from=reset_from)


class Owner:
    """One part of the journal, on a node without a recorder."""

    def __init__(self) -> None:
        self.node = Node(journeys__enabled="false")
        topic = self.node.create(JOURNEYS_TOPIC)
        self.partition = topic.partition(0)
        self.refusals: list[str] = []
        self.load()

    def load(self) -> None:
        self.shard = JourneyShard(
            self.node.clock, self.partition, Written(), is_known=lambda _: True
        )
        self.shard.load(lambda _, error: self.refusals.append(str(error)))
        with pytest.raises(CoordinatorLoading):
            self.shard.ask([])
        self.node.run_for(100)

    def write(self, *pieces: Piece) -> list[int]:
        return self.node.wait(self.shard.write(pieces))

    def ask(self, epoch: int = 0) -> int:
        [position] = self.shard.ask([(*SOURCE, epoch)])
        return position

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [(one.event.first, one.event.end) for one in entries([self.partition])]


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_pieces_that_continue_are_written(owner: Owner) -> None:
    assert owner.ask() == UNKNOWN
    assert owner.write(piece(0, 3), piece(3, 5)) == [WRITTEN, WRITTEN]
    assert owner.write(piece(5, 6)) == [WRITTEN]
    assert owner.ask() == 6
    assert owner.ranges == [(0, 3), (3, 5), (5, 6)]


def test_what_was_written_is_confirmed_and_not_written_again(owner: Owner) -> None:
    owner.write(piece(0, 3), piece(3, 5))
    assert owner.write(piece(0, 3), piece(3, 5), piece(5, 7)) == [WRITTEN] * 3
    assert owner.ranges == [(0, 3), (3, 5), (5, 7)]


def test_a_gap_or_an_overlap_is_refused_with_the_cursor(owner: Owner) -> None:
    assert owner.write(piece(4, 6)) == [UNKNOWN]
    owner.write(piece(0, 3))
    assert owner.write(piece(4, 6), piece(2, 5)) == [3, 3]
    assert owner.ranges == [(0, 3)]


def test_who_knows_that_nothing_is_there_may_begin_anywhere(owner: Owner) -> None:
    assert owner.ask() == UNKNOWN
    assert owner.write(piece(4, 6)) == [WRITTEN]


def test_former_leaders_of_a_source_are_fenced(owner: Owner) -> None:
    owner.write(piece(0, 3, epoch=1))
    assert owner.ask(epoch=2) == 3
    assert owner.write(piece(3, 4, epoch=1)) == [FENCED]
    assert owner.ask(epoch=1) == FENCED
    assert owner.write(piece(3, 4, epoch=2)) == [WRITTEN]


def test_a_source_that_was_truncated_continues_where_it_ends_once(owner: Owner) -> None:
    owner.write(piece(0, 9))
    reset = piece(4, 4, reset_from=9)
    assert owner.write(reset) == [WRITTEN]
    assert owner.ask() == 4
    assert owner.write(reset) == [WRITTEN]
    assert owner.write(piece(4, 6)) == [WRITTEN]
    assert owner.write(reset) == [6]
    assert owner.ranges == [(0, 9), (4, 5), (4, 6)]


def test_a_new_owner_finds_the_cursors_at_the_end(owner: Owner) -> None:
    count = 2 * SNAPSHOT_RECORDS_MIN + 7
    for first in range(count):
        owner.write(piece(first, first + 1))
    empty = Piece(*SOURCE, 3, count, count + 5)
    assert owner.write(empty) == [WRITTEN]
    owner.load()
    assert owner.shard.cursors() == [Cursor(SOURCE, 3, count + 5)]


def test_a_record_of_a_later_release_keeps_the_owner_from_starting(owner: Owner) -> None:
    """Without it, the cursors would be too low, and events be written twice."""
    owner.write(piece(0, 4))
    later = encode_batch([Record(b"\x02\x01later", b"J\x02later")])
    owner.partition.append(memoryview(later), now_ms=0)
    owner.load()
    [refusal] = owner.refusals
    assert "upgrade this node" in refusal
    with pytest.raises(CoordinatorLoading):
        owner.write(piece(4, 5))


@pytest.mark.parametrize(
    "later",
    [
        Record(b"\x02\x01later", b"J\x02later"),
        Record(piece(0, 1).records[0][0], b"J\x02later"),
    ],
    ids=["key", "value"],
)
def test_a_search_that_cannot_read_everything_says_so(owner: Owner, later: Record) -> None:
    owner.write(piece(0, 4))
    owner.partition.append(memoryview(encode_batch([later])), now_ms=0)
    owner.node.run_for(100)
    search = JournalSearch(owner.node.clock, owner.node.broker.topics)
    found = search.find(0, JournalQuery(), begin=0, cancellation=Cancellation())
    with pytest.raises(UpgradeInProgress, match="upgrade this node"):
        owner.node.wait(promised(found))


def test_cursors_of_other_sources_are_in_snapshots(owner: Owner) -> None:
    other = Piece(b"o" * 16, 7, 2, 0, 40)
    owner.write(other)
    for first in range(6 * SNAPSHOT_RECORDS_MIN):
        owner.write(piece(first, first + 1))
    owner.node.disk.bytes_read.clear()
    owner.load()
    assert Cursor(other.source, 2, 40) in owner.shard.cursors()
    read = sum(owner.node.disk.bytes_read.values())
    assert read < sum(segment.size for segment in owner.partition.log.segments)


def test_a_closed_owner_refuses(owner: Owner) -> None:
    owner.shard.close(NotCoordinator("gone"))
    with pytest.raises(NotCoordinator):
        owner.shard.write([piece(0, 1)])
