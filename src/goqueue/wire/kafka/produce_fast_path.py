"""The fast path of Produce: requests with one batch for one partition, which are the most common.

It does the same as the generated codec and `handlers/produce.py`, in a third of the steps. Requests
of any other form, and those that fail, are left to them.

A request with one small batch costs more to handle than to store, and such requests are frequent:
from one client that pipelines, or from many that do not. So all batches of an iteration for a
partition are appended at its end, with one write (`Gatherer`). Requests that are not plain are left
to `produce_one`, and are handled after the earlier requests of their connection.
"""

from __future__ import annotations

from functools import cache, partial
from struct import Struct, calcsize
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.grants import Grants, RunLimits, Stored, Writer
from goqueue.model.batch import read_header
from goqueue.model.errors import GoQueueError
from goqueue.model.runs import Piece, are_plain
from goqueue.model.session import Session
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.request_reference import (
    FLEXIBLE_FROM,
    Run,
    Share,
    parse_produce,
    split_key,
)
from goqueue.wire.kafka.response_errors import name_of

try:
    from goqueue.wire.kafka._requests import answer_run, read_run
except ImportError:  # GoQueue was installed without a compiler.
    from goqueue.wire.kafka.request_reference import answer_run, read_run

if TYPE_CHECKING:
    from goqueue.broker.gate.request_metrics import ApiMetrics
    from goqueue.wire.kafka.connection import Connection
    from goqueue.wire.kafka.front_end import FrontEnd
    from goqueue.wire.parts import Part

RUN_REQUESTS_MAX = 64
# Batches are copied to be contiguous; above this size, copying costs more than separate writes.
FRAME_BYTES_MAX = 16 << 10
TURN_BYTES_MAX = 256 << 10

_ACKS_ALL = -1
_NUMBER_BYTES = 4
_WITH_MESSAGES_FROM = 8
_LENGTH_BYTES = 4

__all__ = ["FRAME_BYTES_MAX", "RUN_REQUESTS_MAX", "Gatherer", "produce_one", "read_run"]


# Answers, and where batches go


@cache
def _form(name_bytes: int, version: int) -> tuple[Struct, int, tuple[int, ...]]:
    """How answers are laid out for names of a length; where the offset is; what they end with.

    The throttle time follows.
    """
    text = f"{name_bytes}s"
    ending: tuple[int, ...]
    if version >= FLEXIBLE_FROM:
        head, tail, ending = f">iixbb{text}bih", "qqqbbxxix", (1, 0)
    elif version >= _WITH_MESSAGES_FROM:
        head, tail, ending = f">iiih{text}iih", "qqqihi", (0, -1)
    else:
        head, tail, ending = f">iiih{text}iih", "qqqi", ()
    return Struct(head + tail), calcsize(head), ending


class Layout:
    """How answers for one partition are laid out in one version.

    There may be thousands. So they share their form, and each keeps what most of its answers are.
    """

    __slots__ = ("_after", "_before", "_form", "_start_offset", "_template", "offset_at")

    def __init__(self, name: bytes, number: int, version: int) -> None:
        # Flexible versions have counts and lengths one larger than what they count.
        more = version >= FLEXIBLE_FROM
        self._before = (1 + more, len(name) + more, name, 1 + more, number)
        self._form, self.offset_at, self._after = _form(len(name), version)
        self._start_offset = 0
        self._template = self.pack(0, 0, -1, -1, 0)

    def pack(
        self,
        correlation_id: int,
        code: int,
        base_offset: int,
        timestamp_ms: int,
        start_offset: int,
        throttle_ms: int = 0,
    ) -> bytes:
        return self._form.pack(
            self._form.size - _LENGTH_BYTES,
            correlation_id,
            *self._before,
            code,
            base_offset,
            timestamp_ms,
            start_offset,
            *self._after,
            throttle_ms,
        )

    def template(self, start_offset: int) -> bytes:
        """The answer for a stored batch, but for its correlation id and its offset."""
        if start_offset != self._start_offset:
            self._template = self.pack(0, 0, -1, -1, start_offset)
            self._start_offset = start_offset
        return self._template


class Route(NamedTuple):
    """A partition that a client may write to, as requests of one version name it."""

    writer: Writer
    layout: Layout


def find_route(grants: Grants, key: bytes) -> Route | None:
    """Where a request leads; None when the client cannot write there, and the handler says why."""
    route: Route | None = grants.routes.get(key)
    if route is not None:
        return route
    name, number, version = split_key(key)
    try:
        writer = grants.writer(name.decode(), number)
    except (UnicodeDecodeError, GoQueueError):
        return None
    route = grants.routes[key] = Route(writer, Layout(name, number, version))
    return route


# One batch


class Answer:
    """The place of the answer in the line of its connection."""

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_layout",
        "_started",
        "_stored",
        "_writer",
        "is_done",
        "parts",
    )

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        layout: Layout,
        writer: Writer,
        stored: Stored,
        started: float,
    ) -> None:
        self._connection = connection
        self._correlation_id = correlation_id
        self._layout = layout
        self._writer = writer
        self._stored = stored
        self._started = started
        self.is_done = False
        self.parts: list[Part] = []

    def __call__(self, error: GoQueueError | None) -> None:
        """The batch is committed, or never will be."""
        stored, start_offset = self._stored, self._writer.log_start_offset
        code, base_offset = 0, stored.base_offset
        measured = self._connection.produced
        measured.duration.observe(perf_counter() - self._started)
        if error is not None:
            code, base_offset = code_of(error), -1
            measured.failed(name_of(code))
        self.parts.append(
            self._layout.pack(
                self._correlation_id,
                code,
                base_offset,
                stored.timestamp_ms,
                start_offset,
                self._connection.throttle_ms if self._connection.muted_until_ms else 0,
            )
        )
        self.is_done = True
        self._connection.advance()


def produce_one(
    connection: Connection,
    frame: memoryview,
    *,
    version: int,
    correlation_id: int,
    at: int,
    started: float,
) -> bool:
    """Handle the request whose body begins at `at`; False leaves it untouched."""
    parsed = parse_produce(frame, at, version)
    if parsed is None:
        return False
    acks, key, start, end = parsed
    route = find_route(connection.grants, key)
    if route is None:
        return False
    writer, layout = route
    if writer.shortage is not None:
        return False  # It depends on what the client wants to wait for.
    try:
        stored = writer.produce(frame[start:end])
    except GoQueueError:
        return False  # Nothing was stored; the general way will say why.
    meter = connection.grants.meter
    throttle_ms = 0 if meter is None else connection.settle_quotas(meter)
    if writer.is_committed(stored):
        answer = layout.pack(
            correlation_id,
            0,
            stored.base_offset,
            stored.timestamp_ms,
            writer.log_start_offset,
            throttle_ms,
        )
        if connection.answer_at_once(answer):
            connection.produced.duration.observe(perf_counter() - started)
            return True
    waiting = Answer(connection, correlation_id, layout, writer, stored, started)
    connection.stand_in_line(waiting)
    writer.when_stored(stored, waiting, is_replicated=acks == _ACKS_ALL)
    return True


# All small batches of a turn

# The waiting responses of a connection: their entries in its queue, and their correlation ids,
# layout, and the index of the first batch.
_Waiting = tuple["_Answers", bytes, bytes, Layout, int]


class _Answers:
    """The entry of the responses to a run of requests in the queue of their connection."""

    __slots__ = ("_answers", "_left", "connection", "is_done", "parts")

    def __init__(self, connection: Connection, count: int) -> None:
        self.connection = connection
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
            self.connection.advance()


class _Load:
    """The batches of one iteration for one partition."""

    __slots__ = (
        "_count",
        "_pieces",
        "_senders",
        "_started",
        "_waiting",
        "_writer",
        "limits",
    )

    def __init__(self, writer: Writer, limits: RunLimits) -> None:
        self.limits = limits
        self._started = perf_counter()  # when the first of them was received
        self._writer = writer
        self._count = 0
        self._pieces: list[Piece] = []
        self._senders: list[Session] = []  # of the pieces
        self._waiting: dict[int, list[_Waiting]] = {}

    def add(self, answers: _Answers, layout: Layout, share: Share, shift: int, acks: int) -> None:
        """Add a share of a run; its spans are moved by `shift`."""
        _, places, correlation_ids, spans = share
        self._pieces.append((spans, shift))
        self._senders.append(answers.connection.session)
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
            offsets, last_offset = writer.append_run(data, self._pieces, self._senders)
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
        self._measure(waiting, error)
        for answers, places, correlation_ids, layout, first in waiting:
            muted = answers.connection.muted_until_ms
            throttle_ms = answers.connection.throttle_ms if muted else 0
            if error is None and not throttle_ms:
                template = layout.template(start_offset)
            else:
                code = 0 if error is None else code_of(error)
                template = layout.pack(0, code, -1, -1, start_offset, throttle_ms)
            answers.put(places, correlation_ids, template, layout, offsets, first)

    def _measure(self, waiting: list[_Waiting], error: GoQueueError | None) -> None:
        """Count the requests, which were received in the same turn, with few observations."""
        seconds, size = perf_counter() - self._started, 0
        measured = waiting[0][0].connection.produced
        for answers, places, _, _, _ in waiting:
            if answers.connection.produced is not measured:
                _observe(measured, seconds, size // _NUMBER_BYTES, error)
                measured, size = answers.connection.produced, 0
            size += len(places)
        _observe(measured, seconds, size // _NUMBER_BYTES, error)


def _observe(measured: ApiMetrics, seconds: float, count: int, error: GoQueueError | None) -> None:
    measured.duration.observe(seconds, count)
    if error is not None:
        measured.failed(name_of(code_of(error)), count)


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
        meter = connection.grants.meter
        if places is None or (meter is not None and meter.is_storage_full):
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
        if meter is not None:
            meter.produced(size, _records_in(data, shares) if meter.counts_produced else 0)
            if meter.owed_ms:
                connection.mute(meter.take_wait())
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
        partition = writer.partition
        load = self._loads.get(partition)
        if load is None:
            limits = writer.run_limits()
            if limits is None:
                return None
            load = self._loads[partition] = _Load(writer, limits)
        place = self._places[grants, key] = load, route.layout
        return place


def _records_in(data: memoryview, shares: list[Share]) -> int:
    """The number of records of the batches in these shares."""
    starts = (start for _, _, _, spans in shares for start in memoryview(spans).cast("i")[::2])
    return sum(read_header(data[start:]).record_count for start in starts)
