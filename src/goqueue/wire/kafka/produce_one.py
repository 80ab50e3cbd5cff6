"""Decodes and answers the most frequent request by hand: one batch for one partition.

It has the same effect as the generated codec with the handler in `handlers/produce.py`, in a third
of the steps. Requests of any other form, and failures, are left to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.grants import Stored, Writer
from goqueue.model.errors import GoQueueError
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.produce_answers import Layout, find_route
from goqueue.wire.kafka.request_reference import parse_produce

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Connection
    from goqueue.wire.parts import Part

_ACKS_ALL = -1


class Answer:
    """The entry of the response in the queue of its connection."""

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_layout",
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
    ) -> None:
        self._connection = connection
        self._correlation_id = correlation_id
        self._layout = layout
        self._writer = writer
        self._stored = stored
        self.is_done = False
        self.parts: list[Part] = []

    def __call__(self, error: GoQueueError | None) -> None:
        """Respond when the batch is committed or has failed."""
        stored, start_offset = self._stored, self._writer.log_start_offset
        code, base_offset = 0, stored.base_offset
        if error is not None:
            code, base_offset = code_of(error), -1
        self.parts.append(
            self._layout.pack(
                self._correlation_id, code, base_offset, stored.timestamp_ms, start_offset
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
) -> bool:
    """Handle the request whose body starts at `at`; False leaves it unhandled."""
    parsed = parse_produce(frame, at, version)
    if parsed is None:
        return False
    acks, key, start, end = parsed
    route = find_route(connection.grants, key)
    if route is None:
        return False
    writer, layout = route
    if writer.shortage is not None:
        return False  # Depends on the acks that the client requests.
    try:
        stored = writer.produce(frame[start:end])
    except GoQueueError:
        return False  # Nothing was stored; the general path reports why.
    if writer.is_committed(stored):
        answer = layout.pack(
            correlation_id, 0, stored.base_offset, stored.timestamp_ms, writer.log_start_offset
        )
        if connection.answer_at_once(answer):
            return True
    waiting = Answer(connection, correlation_id, layout, writer, stored)
    connection.stand_in_line(waiting)
    writer.when_stored(stored, waiting, is_replicated=acks == _ACKS_ALL)
    return True
