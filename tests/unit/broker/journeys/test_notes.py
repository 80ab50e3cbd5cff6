"""Notes of refused duplicates: a killed process leaves them, the next one marks the messages."""

from __future__ import annotations

import pytest

from goqueue.broker.journeys import notes
from goqueue.broker.journeys.notes import Notes
from goqueue.tracing.events import Event, Kind, Place
from tests.simulation.disk import SimulatedDisk
from tests.unit.broker.journeys.test_own_events import _take_away, refuse
from tests.unit.broker.journeys.test_recording import JourneyNode

PLACE, OTHER = Place("orders", b"t" * 16, 0), Place("orders", b"t" * 16, 1)
MARKED_MS = 7_000


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(0)


@pytest.fixture
def node() -> JourneyNode:
    node = JourneyNode()
    node.create("quiet")
    node.send(*"abcdefgh", topic="quiet")
    node.run_for(2_000)
    return node


def marks(node: JourneyNode, offset: int) -> list[Event]:
    node.run_for(MARKED_MS)
    return [one for one in node.events(offset, "quiet") if one.kind is Kind.RECOVERED]


def test_notes_are_there_after_a_restart_until_they_are_cleared(disk: SimulatedDisk) -> None:
    first = Notes(disk)
    assert first.load() == []
    first.add(PLACE, 3, 5)
    first.add(PLACE, 9, 10)
    first.add(OTHER, 0, 1)
    first.add(PLACE, 5, 6)
    second = Notes(disk)
    assert second.load() == [(PLACE, (3, 6)), (PLACE, (9, 10)), (OTHER, (0, 1))]
    second.clear()
    second.add(OTHER, 7, 8)
    assert Notes(disk).load() == [(OTHER, (7, 8))]


def test_what_is_noted_is_not_noted_again(disk: SimulatedDisk) -> None:
    some = Notes(disk)
    some.add(PLACE, 3, 9)
    size = len(disk.read_whole(notes.PATH))
    for _ in range(10):
        some.add(PLACE, 4, 8)
    assert len(disk.read_whole(notes.PATH)) == size


def test_too_many_notes_become_one_for_each_partition(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "SIZE_MAX", 1_000)
    some = Notes(disk)
    for offset in range(0, 1_000, 2):
        some.add(PLACE, offset, offset + 1)
        some.add(OTHER, 5_000 + offset, 5_001 + offset)
        assert len(disk.read_whole(notes.PATH)) <= 1_000
    noted = Notes(disk).load()
    for offset in range(0, 1_000, 2):
        assert any(place == PLACE and first <= offset < end for place, (first, end) in noted)
    assert all(end <= 1_000 for place, (_, end) in noted if place == PLACE)


@pytest.mark.parametrize("kept", [0, 5, 6, 20, 50])
def test_damaged_notes_are_read_up_to_the_damage(disk: SimulatedDisk, kept: int) -> None:
    some = Notes(disk)
    some.add(PLACE, 3, 5)
    size = len(disk.read_whole(notes.PATH))
    some.add(PLACE, 8, 9)
    data = disk.read_whole(notes.PATH)
    damaged = data[:kept] + bytes([data[kept] ^ 1]) + data[kept + 1 :]
    disk.replace_whole(notes.PATH, damaged)
    read = Notes(disk)
    assert read.load() == ([(PLACE, (3, 5))] if kept >= size else [])
    read.add(OTHER, 1, 2)
    assert (OTHER, (1, 2)) in Notes(disk).load()


def test_a_disk_that_fails_does_not_fail_the_duplicate(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = Notes(disk)
    with monkeypatch.context() as full:

        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(disk, "create", fail)
        full.setattr(disk, "replace_whole", fail)
        some.add(PLACE, 1, 2)
        some.add(PLACE, 3, 4)
    some.add(PLACE, 5, 6)
    assert Notes(disk).load() == [(PLACE, (1, 6))]


def test_a_killed_node_marks_the_messages_of_duplicates_it_had_not_written(
    node: JourneyNode,
) -> None:
    refuse(node, "quiet", 2)
    refuse(node, "quiet", 5)
    for _ in range(2):  # The second one is killed before it has marked anything.
        node.kill()
        node.start()
    [mark] = marks(node, 2)
    assert (mark.first, mark.end, mark.details.reason) == (
        2,
        3,
        "the node was killed before it was written",
    )
    assert len(marks(node, 5)) == 1
    assert marks(node, 3) == []
    node.kill()
    node.start()
    assert len(marks(node, 2)) == 1, "it is marked once"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_nothing_is_marked_that_was_written(node: JourneyNode, how: str) -> None:
    refuse(node, "quiet", 2)
    node.run_for(2_000 if how == "kill" else 0)
    getattr(node, how)()
    node.start()
    assert marks(node, 2) == []
    assert node.kinds(2, "quiet").count(Kind.DEDUPLICATED) == 1


def test_notes_remain_while_the_journal_is_away(
    node: JourneyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        _take_away(node, away)
        refuse(node, "quiet", 2)
        node.run_for(5_000)
        refuse(node, "quiet", 6)
        node.run_for(5_000)
        node.kill()
    node.start()
    assert len(marks(node, 2)) == 1
    assert len(marks(node, 6)) == 1
