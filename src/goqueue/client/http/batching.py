"""Collects messages into batches by count, bytes and time; it has no threads and no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from goqueue.model.errors import InvalidRequest
from goqueue.wire.http.fields import MESSAGES_MAX

F = TypeVar("F")

# Brokers accept 16 MiB per request by default; messages are separated by one byte, and the rest of
# the body needs some room.
BODY_BYTES_MAX = 15 << 20


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The size of a batch, how long it lingers, and how much may be buffered."""

    batch_messages_max: int = 500
    batch_bytes_max: int = 1 << 20
    linger_ms: int = 5
    # Back-pressure: a publisher that is faster than the broker waits at these limits.
    buffer_messages_max: int = 10_000
    buffer_bytes_max: int = 64 << 20
    in_flight_max: int = 4  # concurrent requests; the batches of one topic stay in order

    def __post_init__(self) -> None:
        if not 1 <= self.batch_messages_max <= MESSAGES_MAX:
            raise InvalidRequest(f"batch_messages_max must be from 1 to {MESSAGES_MAX}.")
        if not 1 <= self.batch_bytes_max <= BODY_BYTES_MAX:
            raise InvalidRequest(f"batch_bytes_max must be from 1 to {BODY_BYTES_MAX}.")
        if self.buffer_messages_max < 1 or self.buffer_bytes_max < 1 or self.in_flight_max < 1:
            raise InvalidRequest("buffers and in_flight_max must be 1 or more.")
        if self.linger_ms < 0:
            raise InvalidRequest("linger_ms must be 0 or more.")


@dataclass(slots=True)
class Batch(Generic[F]):
    """Messages of one topic that are sent together, each with its future."""

    topic: str
    due_ms: float
    parts: list[bytes] = field(default_factory=list)
    futures: list[F] = field(default_factory=list)
    byte_count: int = 0

    def add(self, part: bytes, future: F) -> None:
        self.parts.append(part)
        self.futures.append(future)
        self.byte_count += len(part) + 1


@dataclass(slots=True)
class Batcher(Generic[F]):
    """The messages to send. A topic has one request in flight at a time, which keeps its order."""

    settings: ProducerSettings
    message_count: int = 0  # buffered or in flight
    byte_count: int = 0
    _queues: dict[str, deque[Batch[F]]] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _is_flushing: bool = False

    def has_room(self, size: int) -> bool:
        """Whether a message may be added; one that is larger than the buffer is sent alone."""
        if not self.message_count:
            return True
        settings = self.settings
        return (
            self.message_count < settings.buffer_messages_max
            and self.byte_count + size <= settings.buffer_bytes_max
        )

    def add(self, topic: str, part: bytes, future: F, now_ms: float) -> None:
        queue = self._queues.setdefault(topic, deque())
        if not queue or not self._fits(queue[-1], part):
            queue.append(Batch(topic, now_ms + self.settings.linger_ms))
        queue[-1].add(part, future)
        self.message_count += 1
        self.byte_count += len(part)

    def take(self, now_ms: float) -> Batch[F] | None:
        """Return a batch to send now, or None."""
        if len(self._busy) >= self.settings.in_flight_max:
            return None
        for topic, queue in self._queues.items():
            if topic not in self._busy and self._is_due(queue, now_ms):
                self._busy.add(topic)
                batch = queue.popleft()
                if not queue:
                    del self._queues[topic]
                return batch
        return None

    def done(self, batch: Batch[F]) -> None:
        """Note that the request of a batch has ended, successfully or not."""
        self._busy.discard(batch.topic)
        self.message_count -= len(batch.parts)
        self.byte_count -= sum(map(len, batch.parts))
        if not self.message_count:
            self._is_flushing = False

    def flush(self) -> None:
        """Stop lingering until everything has been sent."""
        self._is_flushing = self.message_count > 0

    def next_due_ms(self) -> float | None:
        """When the next batch becomes due; None if that depends only on responses."""
        if len(self._busy) >= self.settings.in_flight_max:
            return None
        idle = (queue[0].due_ms for topic, queue in self._queues.items() if topic not in self._busy)
        return min(idle, default=None)

    def _is_due(self, queue: deque[Batch[F]], now_ms: float) -> bool:
        first = queue[0]
        return (
            self._is_flushing
            or len(queue) > 1
            or len(first.parts) >= self.settings.batch_messages_max
            or first.byte_count >= self.settings.batch_bytes_max
            or first.due_ms <= now_ms
        )

    def _fits(self, batch: Batch[F], part: bytes) -> bool:
        return (
            len(batch.parts) < self.settings.batch_messages_max
            and batch.byte_count + len(part) <= self.settings.batch_bytes_max
        )


def split(parts: Iterable[bytes]) -> Iterator[Sequence[bytes]]:
    """Split messages into lists that fit into one request each."""
    chunk: list[bytes] = []
    size = 0
    for part in parts:
        if chunk and (len(chunk) >= MESSAGES_MAX or size + len(part) > BODY_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(part)
        size += len(part) + 1
    if chunk:
        yield chunk
