"""Backups of simulated nodes: taken through the gate, kept in memory, written to other disks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from goqueue.backups.creating import Overtaken
from goqueue.broker.backups.cutting import Cut
from goqueue.broker.backups.restoring import Log, Object, Topic, write_node
from goqueue.broker.gate.areas.backups import BackupsArea, Piece, Span
from goqueue.loop.promise import Promise
from goqueue.model.batch import read_header
from goqueue.model.session import NOBODY
from tests.simulation.disk import SimulatedDisk

T = TypeVar("T")

Wait = Callable[[Promise[Any]], Any]


@dataclass(frozen=True)
class Copy:
    """A cut, and the batches up to it, by topic and partition."""

    cut: Cut
    batches: Mapping[tuple[bytes, int], list[bytes]]

    def write(self, chance: random.Random, *, now_ms: int) -> SimulatedDisk:
        """Write it to an empty disk, whose power then fails: all of it must be durable."""
        disk = SimulatedDisk(chance)
        topics = [
            Topic(
                topic.name,
                max(
                    [
                        read_header(one).leader_epoch
                        for number in range(len(topic.spans))
                        for one in self.batches[topic.id, number]
                    ],
                    default=0,
                ),
                [
                    Log(number, span.start, span.end, _objects(self.batches[topic.id, number]))
                    for number, span in enumerate(topic.spans)
                ],
            )
            for topic in self.cut.topics
        ]
        write_node(disk, self.cut.metadata, topics, now_ms=now_ms)
        disk.crash()
        return disk


def take(area: Callable[[], BackupsArea], wait: Wait) -> Copy:
    """Take a backup while whatever else goes on."""
    return copy_of(wait(area().cut(NOBODY)), area, lambda ask: wait(ask()))


def copy_of(
    cut: Cut, area: Callable[[], BackupsArea], ask: Callable[[Callable[[], Promise[Any]]], Any]
) -> Copy:
    """Read the logs up to a cut; `ask` waits for the answer to a question."""
    batches = {
        (topic.id, number): _read(area, ask, (topic.id, number), span)
        for topic in cut.topics
        for number, span in enumerate(topic.spans)
    }
    return Copy(cut, batches)


def _read(
    area: Callable[[], BackupsArea],
    ask: Callable[[Callable[[], Promise[Any]]], Any],
    place: tuple[bytes, int],
    span: Span,
) -> list[bytes]:
    topic_id, number = place
    batches, offset = [], span.start
    while offset < span.end:
        at = offset
        piece: Piece = ask(
            lambda at=at: area().read(
                NOBODY, topic_id=topic_id, number=number, offset=at, until=span.end
            )
        )
        if piece.cleaned > span.end or piece.start > span.start:
            raise Overtaken("A log has changed below the cut.")
        assert piece.data, "the log ends before the cut"
        position = 0
        while position < len(piece.data):
            header = read_header(piece.data, position)
            batches.append(piece.data[position : position + header.size])
            position += header.size
            offset = header.next_offset
    return batches


def _objects(batches: list[bytes]) -> list[Object]:
    """Objects of three batches each."""
    objects = []
    for first in range(0, len(batches), 3):
        some = batches[first : first + 3]
        last = read_header(some[-1])
        base = read_header(some[0]).base_offset
        objects.append(Object(base, last.next_offset, last.next_offset, some))
    return objects
