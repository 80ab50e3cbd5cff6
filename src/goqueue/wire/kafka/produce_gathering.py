"""Small batches that come in one turn of the event loop, whoever sent them, stored together.

A request that brings one small batch costs more to handle than to store, and where there is one
there are many: from one client that does not wait for answers, or from many that do. So what a
turn brings for a partition is written at the end of the turn, with one write. Whatever is not
plain is left to `produce_one.py`, and comes after what its connection has sent before it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from goqueue.model.batch import BatchHeader
from goqueue.model.errors import GoQueueError
from goqueue.model.runs import Span, is_plain
from goqueue.partition import Partition
from goqueue.partition.rules import RunLimits
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.produce_answers import Layout, find_route
from goqueue.wire.kafka.request_reference import Row, Run

try:
    from goqueue.wire.kafka._requests import read_run
except ImportError:  # There was no compiler where GoQueue was installed.
    from goqueue.wire.kafka.request_reference import read_run

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Connection
    from goqueue.wire.kafka.front_end import FrontEnd
    from goqueue.wire.parts import Part

RUN_REQUESTS_MAX = 64
# Batches are copied to lie side by side; from some size on that costs more than a write each.
FRAME_BYTES_MAX = 16 << 10
TURN_BYTES_MAX = 256 << 10

_ACKS_ALL = -1

__all__ = ["FRAME_BYTES_MAX", "RUN_REQUESTS_MAX", "Gatherer", "read_run"]

# Whose answer waits, at which place there, and what the answer needs: correlation id, layout, and
# which of the batches it is about.
_Waiting = tuple["_Answers", int, int, Layout, int]


class _Answers:
    """The place of the answers to a run of requests in the line of their connection."""

    __slots__ = ("_connection", "_left", "is_done", "parts")

    def __init__(self, connection: Connection, count: int) -> None:
        self._connection = connection
        self._left = count
        self.is_done = False
        self.parts: list[Part] = [b""] * count

    def put(self, place: int, answer: bytes) -> None:
        self.parts[place] = answer
        self._left -= 1
        if not self._left:
            self.is_done = True
            self._connection.advance()


class _Load:
    """What a turn brings for one partition."""

    __slots__ = ("_waiting", "limits", "partition", "spans")

    def __init__(self, partition: Partition, limits: RunLimits) -> None:
        self.partition = partition
        self.limits = limits
        self.spans: list[Span] = []
        self._waiting: dict[int, list[_Waiting]] = {}

    def add(self, span: Span, acks: int, waiting: _Waiting) -> None:
        self.spans.append(span)
        if acks in self._waiting:
            self._waiting[acks].append(waiting)
        else:
            self._waiting[acks] = [waiting]

    def store(self, data: memoryview, now_ms: int) -> None:
        try:
            headers = self.partition.append_run(data, self.spans, now_ms=now_ms)
        except GoQueueError as error:
            for waiting in self._waiting.values():
                self._tell(waiting, [], error)
            return
        last_offset = headers[-1].last_offset
        for acks, waiting in self._waiting.items():
            tell = partial(self._tell, waiting, headers)
            if acks == _ACKS_ALL:
                self.partition.when_committed(last_offset, tell)
            else:
                self.partition.when_durable(last_offset, tell)

    def _tell(
        self, waiting: list[_Waiting], headers: list[BatchHeader], error: GoQueueError | None
    ) -> None:
        """The batches are as durable as wanted, or never will be."""
        code, offset = 0 if error is None else code_of(error), -1
        start_offset = self.partition.log.start_offset
        for answers, place, correlation_id, layout, index in waiting:
            if not code:
                offset = headers[index].base_offset
            answers.put(place, layout.pack(correlation_id, code, offset, -1, start_offset))


class Gatherer:
    """Takes what comes in a turn, and stores it when the turn ends or enough has come."""

    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._places: dict[bytes, tuple[_Load, Layout]] = {}
        self._loads: dict[Partition, _Load] = {}
        self._data = memoryview(bytearray(TURN_BYTES_MAX))
        self._filled = 0
        self._is_turn_running = False
        # How often something was stored. A connection notes when it was last heard here.
        self.rounds = 0

    def take(self, connection: Connection, data: memoryview, at: int, run: Run) -> bool:
        """Take a run of requests that begins at `at`; False leaves all of them untouched."""
        stop, acks, rows = run
        size = stop - at
        if self._filled + size > TURN_BYTES_MAX:
            self.store()
            if size > TURN_BYTES_MAX:
                return False
        places = self._find_places(data, rows)
        if places is None:
            if not self._filled:
                # What was opened for these must not outlive the turn: settings and leaders change.
                self._loads, self._places = {}, {}
            return False
        self._data[self._filled : self._filled + size] = data[at:stop]
        shift = self._filled - at
        self._filled += size
        answers = _Answers(connection, len(rows))
        for place, (correlation_id, _, start, end) in enumerate(rows):
            load, layout = places[place]
            waiting = (answers, place, correlation_id, layout, len(load.spans))
            load.add((start + shift, end + shift), acks, waiting)
        connection.stand_in_line(answers)
        connection.round_heard = self.rounds
        if not self._is_turn_running:
            self._is_turn_running = True
            self._front.broker.scheduler.call_soon(self._end_turn)
        return True

    def store(self) -> None:
        """Store what has come so far."""
        if not self._filled:
            return
        loads, data = self._loads, self._data[: self._filled]
        self._loads, self._places, self._filled = {}, {}, 0
        self.rounds += 1
        now_ms = self._front.broker.scheduler.wall_ms()
        for load in loads.values():
            if load.spans:
                load.store(data, now_ms)

    def _end_turn(self) -> None:
        self._is_turn_running = False
        self.store()
        self._front.flush_all()

    def _find_places(self, data: memoryview, rows: list[Row]) -> list[tuple[_Load, Layout]] | None:
        """Where each batch goes, and how its answer looks; None unless all of them are plain."""
        places = []
        for _, key, start, end in rows:
            place = self._places.get(key) or self._open(key)
            if place is None or not is_plain(data, start, end, *place[0].limits):
                return None
            places.append(place)
        return places

    def _open(self, key: bytes) -> tuple[_Load, Layout] | None:
        """The place for a partition; None when that wants a closer look at each batch."""
        route = find_route(self._front, key)
        if route is None:
            return None
        partition = route.partition
        load = self._loads.get(partition)
        if load is None:
            broker = self._front.broker
            limits = partition.run_limits(now_ms=broker.scheduler.wall_ms())
            if limits is None or not broker.takes_runs(route.topic):
                return None
            load = self._loads[partition] = _Load(partition, limits)
        place = self._places[key] = load, route.layout
        return place
