"""The internal topics of brokers: creating them, and waiting until they exist.

A single node creates an internal topic on first use, and starts its coordinators in the same
event-loop turn, so no call finds the topic without its coordinators. A cluster creates all of them
when it forms. There a call may arrive before this node has their metadata, or before it has loaded
its coordinators: such a call waits here, for a bounded time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import Decision
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import JourneySettings, SecuritySettings, Settings
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import CoordinatorNotAvailable
from goqueue.model.names import (
    AUDIT_TOPIC,
    DELIVERY_TOPIC,
    JOURNEYS_TOPIC,
    OFFSETS_TOPIC,
    SCHEDULED_TOPIC,
    SCHEMAS_TOPIC,
    TRANSACTION_TOPIC,
)
from goqueue.model.support import LEVEL_MIN

# How long a call waits for its own node to finish the setup. Afterwards Kafka clients retry by
# themselves; for HTTP clients their node retries.
SETUP_WAIT_MS = 1_000

OFFSETS_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(100 << 20),
    "max_message_bytes": str(64 << 20),
}
DELIVERY_SETTINGS = {
    "cleanup_policy": "delete",
    "compression_type": "producer",
    "retention_ms": "-1",  # only what a snapshot has replaced may be deleted
    "retention_bytes": "-1",
    "segment_bytes": str(16 << 20),
    "max_message_bytes": str(64 << 20),
}
SCHEDULED_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(64 << 20),
    "max_message_bytes": str(64 << 20),
    # Records stay at least until a checkpoint includes them.
    "min_compaction_lag_ms": str(600_000),
}
SCHEMAS_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(16 << 20),
    "max_message_bytes": str(64 << 20),
}
TRANSACTION_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(100 << 20),
    "max_message_bytes": str(64 << 20),
}


def audit_settings(security: SecuritySettings) -> dict[str, str]:
    """The settings of the audit log, which follow those of the node."""
    is_bounded = security.audit_retention_bytes > 0
    # Whole segments are deleted.
    segment_bytes = security.audit_retention_bytes // 10 if is_bounded else 64 << 20
    return {
        "cleanup_policy": "delete",
        "compression_type": "producer",
        "message_timestamp_type": "LogAppendTime",  # of several nodes, whose clocks may differ
        "retention_ms": str(security.audit_retention_ms),
        "retention_bytes": str(security.audit_retention_bytes),
        "segment_bytes": str(min(64 << 20, max(1 << 20, segment_bytes))),
    }


def journeys_settings(journeys: JourneySettings) -> dict[str, str]:
    """The settings of the journal of journeys, which follow those of the node."""
    is_bounded = journeys.retention_bytes > 0
    segment_bytes = journeys.retention_bytes // 10 if is_bounded else 64 << 20
    return {
        "cleanup_policy": "delete",
        "compression_type": "producer",
        "retention_ms": str(journeys.retention_ms),
        "retention_bytes": str(journeys.retention_bytes),
        "segment_bytes": str(min(64 << 20, max(1 << 20, segment_bytes))),
        "max_message_bytes": str(64 << 20),
    }


_VOTERS_FOR_TWO_COPIES = 3
# Topics that have come with a later feature level; older nodes would show them to clients.
_LEVELS = {JOURNEYS_TOPIC: 3}


def internal_topics(settings: Settings) -> list[InternalTopic]:
    """The internal topics that a cluster creates when it forms, or when it needs another one.

    With enough nodes, a record on a single node only is not committed.
    """
    cluster, journeys = settings.cluster, settings.journeys
    is_discovered = cluster.discovery is not None
    voters = cluster.discovery_count if is_discovered else len(cluster.peers.split(","))
    extra = {"min_insync_replicas": "2"} if voters >= _VOTERS_FOR_TWO_COPIES else {}
    return [
        InternalTopic(name, partition_count, {**own, **extra}, _LEVELS.get(name, LEVEL_MIN))
        for name, partition_count, own in (
            (OFFSETS_TOPIC, settings.groups.offsets_partitions, OFFSETS_SETTINGS),
            (DELIVERY_TOPIC, settings.delivery.partitions, DELIVERY_SETTINGS),
            (SCHEDULED_TOPIC, settings.schedules.partitions, SCHEDULED_SETTINGS),
            (SCHEMAS_TOPIC, 1, SCHEMAS_SETTINGS),
            (TRANSACTION_TOPIC, settings.transactions.state_partitions, TRANSACTION_SETTINGS),
            *(
                [(JOURNEYS_TOPIC, journeys.partitions, journeys_settings(journeys))]
                if journeys.enabled
                else []
            ),
            *([(AUDIT_TOPIC, 1, audit_settings(settings.security))] if settings.is_audited else []),
        )
    ]


class Leadership(Protocol):
    """The leaders of the partitions of internal topics."""

    @property
    def is_alone(self) -> bool: ...

    @property
    def node_id(self) -> int: ...

    def node_of(self, topic: Topic, number: int) -> int: ...


class InternalTopics:
    """Creates internal topics on a single node, and lets calls wait for them in a cluster."""

    def __init__(
        self, clock: Clock, topics: Topics, leaders: Leadership, settings: Settings
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._specs = {spec.name: spec for spec in internal_topics(settings)}
        self._begin: dict[str, Callable[[Topic], None]] = {}
        self._making: dict[str, Promise[Topic]] = {}
        self._waiting: dict[Promise[None], Callable[[], bool]] = {}
        self._is_look_due = False
        topics.facts.log.on_applied(self._facts_changed)

    @property
    def is_alone(self) -> bool:
        return self._leaders.is_alone

    def on_made(self, name: str, begin: Callable[[Topic], None]) -> None:
        """Call `begin` to start the coordinators as soon as a single node has created a topic."""
        self._begin[name] = begin

    def make(self, name: str) -> Topic:
        """Return the topic, creating it if missing; none of its records is durable before it is."""
        topic = self._topics.find(name)
        if topic is not None:
            return topic
        if not self._leaders.is_alone:
            raise CoordinatorNotAvailable("The cluster is still forming; retry.")
        spec = self._specs[name]
        self._making[name] = self._topics.create(
            name, partition_count=spec.partition_count, settings=dict(spec.settings)
        )
        topic = self._topics.get(name)
        if name in self._begin:
            self._begin[name](topic)
        return topic

    def made(self, name: str) -> Promise[Topic]:
        """Return the topic once its creation is durable, creating it if missing."""
        topic = self.make(name)
        making = self._making.get(name)
        if making is not None and not making.is_done:
            return making
        made: Promise[Topic] = Promise()
        made.resolve(topic)
        return made

    async def ready(self, name: str) -> Topic:
        """Return the topic: a single node creates it, in a cluster wait until its metadata
        arrives.
        """
        if not self._leaders.is_alone:
            await self.until(lambda: self._topics.find(name) is not None)
        return self.make(name)

    def is_awaited(self, name: str, number: int) -> bool:
        """Whether this node leads a partition, or does not have the topic's metadata yet.

        For a caller that finds no coordinator here, and must wait or try another node.
        """
        topic = self._topics.find(name)
        if topic is None:
            return not self._leaders.is_alone
        return self._leaders.node_of(topic, number) == self._leaders.node_id

    def until(self, is_reached: Callable[[], bool]) -> Promise[None]:
        """Resolves when a condition holds, or after `SETUP_WAIT_MS` even if it does not.

        It is checked after every change of the cluster's metadata and whenever `look` is called.
        """
        promise: Promise[None] = Promise()
        if is_reached():
            promise.resolve(None)
            return promise
        self._waiting[promise] = is_reached

        def give_up() -> None:
            if self._waiting.pop(promise, None) is not None:
                promise.resolve(None)

        self._clock.call_later(SETUP_WAIT_MS, give_up)
        return promise

    def look(self) -> None:
        """Check waiting calls again: a coordinator has been loaded or stopped."""
        if self._waiting and not self._is_look_due:
            self._is_look_due = True
            # After this turn, in which all parts of the node act on the change.
            self._clock.call_soon(self._look)

    def _look(self) -> None:
        self._is_look_due = False
        for promise in [one for one, is_reached in self._waiting.items() if is_reached()]:
            # A call resumed before may have ended the wait of others.
            if self._waiting.pop(promise, None) is not None:
                promise.resolve(None)

    def _facts_changed(self, _: Decision) -> None:
        self.look()
