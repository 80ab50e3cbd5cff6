"""Server-sent events: a stream of messages for as long as the client is connected.

The id of an event contains the next offset of every partition that is read, so a client that
reconnects with `Last-Event-ID`, as browsers do automatically, misses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.calls import Stream, encode
from goqueue.wire.carrier.problems import problem_of
from goqueue.wire.http.bodies.messages import Message
from goqueue.wire.http.fields import Encoding
from goqueue.wire.http.messages import to_message

if TYPE_CHECKING:
    from goqueue.broker.gate.views import PageView, RecordStream
    from goqueue.model.batch import Record

HEARTBEAT_MS = 15_000  # proxies close a connection that is idle for longer
RECONNECT_MS = 1000  # sent to clients
MESSAGES_PER_WRITE_MAX = 200
BYTES_PER_WRITE_MAX = 1 << 20


class EventStream(Stream):
    """The stream of one client: `next` resolves with the bytes to send."""

    def __init__(self, records: RecordStream, topic: str, encoding: Encoding) -> None:
        self.is_over = False
        self._records = records
        self._topic = topic
        self._encoding = encoding
        self._offsets = {one.partition.name.partition: one.offset for one in records.places}

    def opening(self) -> bytes:
        """The bytes sent at once, so that the client sees that it is connected and from where."""
        return b"retry: %d\nid: %s\n\n" % (RECONNECT_MS, self._id())

    def next(self) -> Promise[bytes]:
        """The next bytes to send: events, or a comment that keeps the connection alive."""
        promise: Promise[bytes] = Promise()

        def arrived(page: PageView | None, error: Exception | None) -> None:
            if isinstance(error, GoQueueError):
                self.is_over = True
                promise.resolve(b"event: error\ndata: %s\n\n" % encode(problem_of(error)))
            elif page is None:
                promise.settle(None, error)
            else:
                promise.resolve(self._events(page))

        self._records.next(
            records_max=MESSAGES_PER_WRITE_MAX,
            bytes_max=BYTES_PER_WRITE_MAX,
            wait_ms=HEARTBEAT_MS,
        ).then(arrived)
        return promise

    def close(self) -> None:
        """End the stream, because the client has disconnected."""
        self.is_over = True
        self._records.close()

    def _events(self, page: PageView) -> bytes:
        events = []
        for partition, record in page.records:
            number = partition.name.partition
            self._offsets[number] = record.offset + 1
            message = self._shown(number, record)
            if message is not None:
                events.append(b"id: %s\ndata: %s\n\n" % (self._id(), encode(message)))
        for place in page.places:
            self._offsets[place.partition.name.partition] = place.offset
        for one in page.damaged:
            problem = encode(problem_of(one.error))
            events.append(b"id: %s\nevent: damage\ndata: %s\n\n" % (self._id(), problem))
        events += self._left_out()
        return b"".join(events) or b": waiting\n\n"

    def _shown(self, number: int, record: Record) -> Message | None:
        """Return the message to send for a record; None if it is left out."""
        return to_message(self._topic, number, record, self._encoding)

    def _left_out(self) -> list[bytes]:
        """Return what to send instead of messages that are left out."""
        return []

    def _id(self) -> bytes:
        return ",".join(f"{one}:{offset}" for one, offset in self._offsets.items()).encode()
