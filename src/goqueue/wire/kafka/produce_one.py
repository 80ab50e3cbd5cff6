"""The commonest request by far, read and answered by hand: one batch for one partition.

It says the same as the generated codec with the handler in `handlers/produce.py`, in a third of
the steps. Whatever does not have exactly this form, or fails, is left to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.publishing.split_batches import Split
from goqueue.broker.transactions.joining import Joining
from goqueue.model.errors import GoQueueError
from goqueue.partition import Appended, Partition
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.produce_answers import Layout, find_route
from goqueue.wire.kafka.request_reference import parse_produce

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Connection
    from goqueue.wire.kafka.front_end import FrontEnd
    from goqueue.wire.parts import Part

_ACKS_ALL = -1


class Answer:
    """The place of the answer in the line of its connection."""

    __slots__ = (
        "_appended",
        "_connection",
        "_correlation_id",
        "_layout",
        "_partition",
        "is_done",
        "parts",
    )

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        layout: Layout,
        partition: Partition,
        appended: Appended | Split | Joining,
    ) -> None:
        self._connection = connection
        self._correlation_id = correlation_id
        self._layout = layout
        self._partition = partition
        self._appended = appended
        self.is_done = False
        self.parts: list[Part] = []

    def __call__(self, error: GoQueueError | None) -> None:
        """The batch is committed, or never will be."""
        appended, start_offset = self._appended, self._partition.log.start_offset
        code, base_offset = 0, appended.base_offset
        if error is not None:
            code, base_offset = code_of(error), -1
        self.parts.append(
            self._layout.pack(
                self._correlation_id, code, base_offset, appended.timestamp_ms, start_offset
            )
        )
        self.is_done = True
        self._connection.advance()


def produce_one(
    front: FrontEnd,
    connection: Connection,
    frame: memoryview,
    *,
    version: int,
    correlation_id: int,
    at: int,
) -> bool:
    """Handle the request whose body begins at `at`; False leaves it untouched."""
    parsed = parse_produce(frame, at, version)
    if parsed is None:
        return False
    acks, key, start, end = parsed
    route = find_route(front, key)
    if route is None:
        return False
    partition = route.partition
    if partition.shortage is not None:
        return False  # It depends on what the client wants to wait for.
    try:
        appended = front.broker.produce(route.topic, partition, frame[start:end])
    except GoQueueError:
        return False  # Nothing was stored; the general way will say why.
    layout = route.layout
    if isinstance(appended, Appended) and appended.last_offset < partition.high_watermark:
        # It is committed already, so nobody has to be called back.
        base_offset, _, timestamp_ms = appended
        start_offset = partition.log.start_offset
        answer = layout.pack(correlation_id, 0, base_offset, timestamp_ms, start_offset)
        if connection.answer_at_once(answer):
            return True
    waiting = Answer(connection, correlation_id, layout, partition, appended)
    connection.stand_in_line(waiting)
    if isinstance(appended, Appended) and acks == _ACKS_ALL:
        partition.when_committed(appended.last_offset, waiting)
    elif isinstance(appended, Appended):
        partition.when_durable(appended.last_offset, waiting)
    else:
        appended.when_committed(waiting)
    return True
