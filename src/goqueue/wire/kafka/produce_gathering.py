"""Gathers small batches of all connections and appends those of one event-loop iteration together.

A request with one small batch costs more to handle than to store, and such requests are frequent:
from one client that pipelines, or from many that do not. So all batches of an iteration for a
partition are appended at its end, with one write. Requests that are not plain are left to
`produce_one.py`, and are handled after the earlier requests of their connection.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from goqueue.broker.gate.grants import Grants, RunLimits, Writer
from goqueue.model.errors import GoQueueError
from goqueue.model.runs import Piece, are_plain
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.produce_answers import Layout, find_route
from goqueue.wire.kafka.request_reference import Run, Share

try:
    from goqueue.wire.kafka._requests import answer_run, read_run
except ImportError:  # GoQueue was installed without a compiler.
    from goqueue.wire.kafka.request_reference import answer_run, read_run

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Connection
    from goqueue.wire.kafka.front_end import FrontEnd
    from goqueue.wire.parts import Part

RUN_REQUESTS_MAX = 64
# Batches are copied to be contiguous; above this size, copying costs more than separate writes.
FRAME_BYTES_MAX = 16 << 10
TURN_BYTES_MAX = 256 << 10

_ACKS_ALL = -1
_NUMBER_BYTES = 4

__all__ = ["FRAME_BYTES_MAX", "RUN_REQUESTS_MAX", "Gatherer", "read_run"]

# The waiting responses of a connection: their entries in its queue, and their correlation ids,
# layout, and the index of the first batch.
_Waiting = tuple["_Answers", bytes, bytes, Layout, int]


class _Answers:
    """The entry of the responses to a run of requests in the queue of their connection."""

    __slots__ = ("_answers", "_connection", "_left", "is_done", "parts")

    def __init__(self, connection: Connection, count: int) -> None:
        self._connection = connection
        self._left = count
        self._answers = [b""] * count
        self.is_done = False
        self.parts: list[Part] = []

    def put(
        self,
        places: bytes,
        correlation_ids: bytes,
        template: bytes,
        layout: Layout,
        offsets: bytes,
        first: int,
    ) -> None:
        answers = self._answers
        answer_run(answers, places, correlation_ids, template, layout.offset_at, offsets, first)
        self._left -= len(places) // _NUMBER_BYTES
        if not self._left:
            self.parts.append(b"".join(answers) if len(answers) > 1 else answers[0])
            self.is_done = True
            self._connection.advance()


class _Load:
    """The batches of one iteration for one partition."""

    __slots__ = ("_count", "_pieces", "_waiting", "_writer", "limits")

    def __init__(self, writer: Writer, limits: RunLimits) -> None:
        self.limits = limits
        self._writer = writer
        self._count = 0
        self._pieces: list[Piece] = []
        self._waiting: dict[int, list[_Waiting]] = {}

    def add(self, answers: _Answers, layout: Layout, share: Share, shift: int, acks: int) -> None:
        """Add a share of a run; its spans are moved by `shift`."""
        _, places, correlation_ids, spans = share
        self._pieces.append((spans, shift))
        waiting = (answers, places, correlation_ids, layout, self._count)
        if acks in self._waiting:
            self._waiting[acks].append(waiting)
        else:
            self._waiting[acks] = [waiting]
        self._count += len(places) // _NUMBER_BYTES

    def store(self, data: memoryview) -> None:
        if not self._count:
            return
        writer = self._writer
        try:
            offsets, last_offset = writer.append_run(data, self._pieces)
        except GoQueueError as error:
            for waiting in self._waiting.values():
                self._answer(waiting, b"", error)
            return
        for acks, waiting in self._waiting.items():
            answer = partial(self._answer, waiting, offsets)
            writer.when_run_stored(last_offset, answer, is_replicated=acks == _ACKS_ALL)

    def _answer(self, waiting: list[_Waiting], offsets: bytes, error: GoQueueError | None) -> None:
        """Respond when the batches are as durable as requested, or have failed."""
        start_offset = self._writer.log_start_offset
        if error is not None:
            offsets = b""
        for answers, places, correlation_ids, layout, first in waiting:
            if error is None:
                template = layout.template(start_offset)
            else:
                template = layout.pack(0, code_of(error), -1, -1, start_offset)
            answers.put(places, correlation_ids, template, layout, offsets, first)


_Place = tuple[_Load, Layout]


class Gatherer:
    """Collects the batches of an iteration, and stores them at its end or when there are enough."""

    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._places: dict[tuple[Grants, bytes], _Place] = {}
        self._loads: dict[object, _Load] = {}  # by partition, for all connections
        self._data = memoryview(bytearray(TURN_BYTES_MAX))
        self._filled = 0
        self._is_turn_running = False
        # The number of stores so far. A connection records the number when it was last used here.
        self.rounds = 0

    def take(self, connection: Connection, data: memoryview, at: int, run: Run) -> bool:
        """Take a run of requests that starts at `at`; False leaves all of them unhandled."""
        stop, acks, count, shares = run
        size = stop - at
        if self._filled + size > TURN_BYTES_MAX:
            self.store()
            if size > TURN_BYTES_MAX:
                return False
        places = self._find_places(connection.grants, data, shares)
        if places is None:
            if not self._filled:
                # Loads must not outlive the iteration: settings and leaders change.
                self._loads, self._places = {}, {}
            return False
        self._data[self._filled : self._filled + size] = data[at:stop]
        shift = self._filled - at
        self._filled += size
        answers = _Answers(connection, count)
        for share, (load, layout) in zip(shares, places, strict=True):
            load.add(answers, layout, share, shift, acks)
        connection.stand_in_line(answers)
        connection.round_heard = self.rounds
        if not self._is_turn_running:
            self._is_turn_running = True
            self._front.gate.clock.call_soon(self._end_turn)
        return True

    def store(self) -> None:
        """Store what has been collected."""
        if not self._filled:
            return
        loads, data = self._loads, self._data[: self._filled]
        self._loads, self._places, self._filled = {}, {}, 0
        self.rounds += 1
        for load in loads.values():
            load.store(data)

    def _end_turn(self) -> None:
        self._is_turn_running = False
        self.store()
        self._front.flush_all()

    def _find_places(
        self, grants: Grants, data: memoryview, shares: list[Share]
    ) -> list[_Place] | None:
        """The load and the layout of each share; None unless all batches are plain."""
        places = []
        for key, _, _, spans in shares:
            place = self._places.get((grants, key)) or self._open(grants, key)
            if place is None or not are_plain(data, spans, *place[0].limits):
                return None
            places.append(place)
        return places

    def _open(self, grants: Grants, key: bytes) -> _Place | None:
        """The load of a partition; None if its batches must be handled one by one."""
        route = find_route(grants, key)
        if route is None:
            return None
        writer = route.writer
        load = self._loads.get(writer.partition)
        if load is None:
            limits = writer.run_limits()
            if limits is None:
                return None
            load = self._loads[writer.partition] = _Load(writer, limits)
        place = self._places[grants, key] = load, route.layout
        return place
