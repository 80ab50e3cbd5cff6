"""How the owner of a queue makes sure that no earlier owner stores anything for it any more.

Ownership is decided by the cluster, and a former owner may hear of that late, or have something on
its way. So the owner writes as a producer that it takes over, which has an epoch, and tells every
partition of the topic with a marker of that epoch before it looks what is there. From then on the
leaders turn away what an earlier owner sends; what they took before that lies before the marker.
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

CLAIM_MS_MAX = 10_000  # for all leaders to take the marker
RETRY_MS = 100
_PRODUCER_PREFIX = "named-queue/"


class Publish(Protocol):
    def __call__(
        self, topic: str, outgoing: Sequence[Record | Outgoing]
    ) -> Promise[list[PublishResult]]: ...


class Claims(Protocol):
    """Makes this node the only one that stores for a queue."""

    is_alone: bool  # there are no other nodes

    async def claim(self, queue: NamedQueueFact, topic: Topic) -> Publish:
        """What to store with from now on, until it fails or another node claims the queue."""


class NoClaims:
    """A node that is alone has nobody to turn away: what its earlier life sent is on its disk."""

    is_alone = True

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    async def claim(self, queue: NamedQueueFact, topic: Topic) -> Publish:
        return self._publish


class ClusterClaims:
    """Takes over the producer of a queue, and tells the leaders of its topic."""

    is_alone = False

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        publisher: Callable[[OwnersOutbox], Publish],
    ) -> None:
        """`publisher` makes one that writes through an outbox."""
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
        """Ask the leaders of these partitions, all at once; those that must be asked again."""
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
                    f"Another node has claimed the queue on {topic.name} meanwhile; retry there."
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
