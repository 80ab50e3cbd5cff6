"""Requests that came together and each bring one small batch: stored with one write, answered so.

A client with many requests on its way sends them in one piece, and what is done for each of them
one by one costs more than storing it. Whatever is not plain is left to `produce_one.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from goqueue.model.errors import GoQueueError
from goqueue.model.run_reference import Span
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.produce_answers import Route, find_route
from goqueue.wire.kafka.request_reference import Row, Run

try:
    from goqueue.wire.kafka._requests import read_run
except ImportError:  # There was no compiler where GoQueue was installed.
    from goqueue.wire.kafka.request_reference import read_run

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Connection
    from goqueue.wire.kafka.front_end import FrontEnd
    from goqueue.wire.parts import Part

REQUESTS_MAX = 64
# Batches are copied to lie side by side; from some size on that costs more than a write each.
FRAME_BYTES_MAX = 16 << 10

_ACKS_ALL = -1

__all__ = ["FRAME_BYTES_MAX", "REQUESTS_MAX", "produce_run", "read_run"]


class _Load:
    """The batches of a run that go to one partition."""

    __slots__ = ("_error", "_last_offset", "_layout", "offsets", "partition", "route", "spans")

    def __init__(self, route: Route, version: int) -> None:
        self.route = route
        self.partition = route.partition
        self.spans: list[Span] = []
        self._layout = route.layout(version)
        self.offsets: list[int] = []
        self._last_offset = -1
        self._error: GoQueueError | None = None

    def store(self, data: memoryview) -> None:
        try:
            headers = self.partition.append_run(data, self.spans)
        except GoQueueError as error:
            self._error = error
        else:
            self.offsets = [header.base_offset for header in headers]
            self._last_offset = headers[-1].last_offset

    @property
    def is_settled(self) -> bool:
        """Whether nothing has to be waited for."""
        return self._last_offset < self.partition.high_watermark

    def when_settled(self, acks: int, settled: Callable[[], None]) -> None:
        """Call `settled` once the batches are as durable as wanted, or never will be."""
        if self._error is not None:
            settled()
            return
        told = partial(self._settle, settled)
        if acks == _ACKS_ALL:
            self.partition.when_committed(self._last_offset, told)
        else:
            self.partition.when_durable(self._last_offset, told)

    def _settle(self, settled: Callable[[], None], error: GoQueueError | None) -> None:
        self._error = error
        settled()

    def answer(self, correlation_id: int, base_offset: int) -> bytes:
        code, start_offset = 0, self.partition.log.start_offset
        if self._error is not None:
            code, base_offset = code_of(self._error), -1
        return self._layout.pack(correlation_id, code, base_offset, -1, start_offset)


class _Answers:
    """The place of the answers in the line of their connection."""

    __slots__ = ("_connection", "_left", "_loads", "_rows", "is_done", "parts")

    def __init__(self, connection: Connection, rows: list[Row], loads: dict[bytes, _Load]) -> None:
        self._connection = connection
        self._rows = rows
        self._loads = loads
        self._left = len(loads)
        self.is_done = False
        self.parts: list[Part] = []

    def wait(self, acks: int) -> None:
        for load in self._loads.values():
            load.when_settled(acks, self._settled)

    def _settled(self) -> None:
        self._left -= 1
        if not self._left:
            self.parts.append(_pack(self._rows, self._loads))
            self.is_done = True
            self._connection.advance()


def produce_run(front: FrontEnd, connection: Connection, data: memoryview, run: Run) -> bool:
    """Store the batches of a run; False leaves all of them untouched."""
    _, version, acks, rows = run
    loads = _sort(front, rows, version)
    if loads is None or not _are_taken(front, data, loads):
        return False
    for load in loads.values():
        load.store(data)
    is_settled = all([load.is_settled for load in loads.values()])
    if is_settled and connection.answer_at_once(_pack(rows, loads)):
        return True  # All is committed already, so nobody has to be called back.
    answers = _Answers(connection, rows, loads)
    connection.stand_in_line(answers)
    answers.wait(acks)
    return True


def _sort(front: FrontEnd, rows: list[Row], version: int) -> dict[bytes, _Load] | None:
    loads: dict[bytes, _Load] = {}
    for _, key, span in rows:
        load = loads.get(key)
        if load is None:
            route = find_route(front, key, version)
            if route is None:
                return None
            load = loads[key] = _Load(route, version)
        load.spans.append(span)
    return loads


def _are_taken(front: FrontEnd, data: memoryview, loads: dict[bytes, _Load]) -> bool:
    broker = front.broker
    now_ms = broker.scheduler.wall_ms()
    for load in loads.values():
        if not broker.takes_runs(load.route.topic):
            return False
        if not load.partition.takes_run(data, load.spans, now_ms=now_ms):
            return False
    return True


def _pack(rows: list[Row], loads: dict[bytes, _Load]) -> bytes:
    """The answers in the order of the requests."""
    offsets = {key: iter(load.offsets) for key, load in loads.items()}
    return b"".join(
        [
            loads[key].answer(correlation_id, next(offsets[key], -1))
            for correlation_id, key, _ in rows
        ]
    )
