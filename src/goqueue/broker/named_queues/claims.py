"""Fencing: how the owner of a queue makes sure that no former owner stores messages for it.

Ownership is decided by the cluster; a former owner may learn of that late, or have writes in
flight. So the owner takes over a named producer, which increments its epoch, and writes a marker of
that epoch to every partition of the topic before it reads what is there. From then on the leaders
refuse writes of a former owner; what they accepted before lies before the marker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from goqueue.broker.publishing.outbox import OwnersOutbox
from goqueue.broker.publishing.publisher import Outgoing, PublishResult
from goqueue.broker.replication.leaders import Leaders, Marker
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedProducer, NamedQueueFact
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import (
    FencedProducer,
    GoQueueError,
    NotCoordinator,
    TransactionCoordinatorFenced,
)
from goqueue.model.session import Session

CLAIM_MS_MAX = 10_000  # for all leaders to accept the marker
RETRY_MS = 100
_PRODUCER_PREFIX = "named-queue/"


class Publish(Protocol):
    def __call__(
        self,
        topic: str,
        outgoing: Sequence[Record | Outgoing],
        *,
        session: Session | None = None,
    ) -> Promise[list[PublishResult]]: ...


class Claims(Protocol):
    """Makes this node the only one that stores messages for a queue."""

    is_alone: bool  # this is a single node

    async def claim(self, queue: NamedQueueFact, topic: Topic) -> Publish:
        """Return the publisher to use until it fails or another node claims the queue."""


class NoClaims:
    """For a single node, which has no one to fence: its earlier writes are on its own disk."""

    is_alone = True

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    async def claim(self, queue: NamedQueueFact, topic: Topic) -> Publish:
        return self._publish


class ClusterClaims:
    """Takes over the producer of a queue, and fences former owners at the leaders."""

    is_alone = False

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        publisher: Callable[[OwnersOutbox], Publish],
    ) -> None:
        """`publisher` returns a publisher that writes through an outbox."""
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._publisher = publisher

    async def claim(self, queue: NamedQueueFact, topic: Topic) -> Publish:
        producer = await self._topics.facts.take_over_producer(producer_name(queue))
        deadline_ms = self._clock.now_ms() + CLAIM_MS_MAX
        left = list(range(len(topic.partitions)))
        while left:
            left = await self._tell(topic, left, producer, deadline_ms)
        return self._publisher(
            OwnersOutbox(
                self._clock,
                self._leaders,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
            )
        )

    async def _tell(
        self, topic: Topic, numbers: Sequence[int], producer: NamedProducer, deadline_ms: int
    ) -> list[int]:
        """Send the marker to the leaders of these partitions; return those to retry."""
        told = [
            self._leaders.end_transaction(
                topic,
                Marker(
                    topic.id,
                    number,
                    producer.producer_id,
                    producer.epoch,
                    is_commit=False,
                    coordinator_epoch=producer.epoch,
                    turn=0,
                    leader_epoch=self._leaders.epoch_of(topic, number),
                ),
                timeout_ms=0,
            )
            for number in numbers
        ]
        left: list[int] = []
        for number, marked in zip(numbers, told, strict=True):
            try:
                await marked
            except (FencedProducer, TransactionCoordinatorFenced) as error:
                raise NotCoordinator(
                    f"Another node has claimed the queue on {topic.name} since; retry there."
                ) from error
            except GoQueueError as error:
                if not error.retryable or self._clock.now_ms() >= deadline_ms:
                    raise
                left.append(number)
        if left:
            await self._rest()
        return left

    def _rest(self) -> Promise[None]:
        rested: Promise[None] = Promise()
        self._clock.call_later(RETRY_MS, lambda: rested.resolve(None))
        return rested


def producer_name(queue: NamedQueueFact) -> str:
    return _PRODUCER_PREFIX + queue.id.hex()


__all__ = ["Claims", "ClusterClaims", "NoClaims", "Publish", "producer_name"]
