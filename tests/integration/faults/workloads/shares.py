"""Members of a share group (KIP-932) that accept and release what they get, across faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message, ShareConsumer

from tests.integration.faults.operations import Kind, Outcome

from .base import Site
from .queues import Consumer, HttpQueue, Received, Worker

POLL_SECONDS = 1.0
COMMIT_SECONDS = 10.0
# Answers that say that nothing was settled: the lease has ended, or another member has it.
_REFUSALS = frozenset((KafkaError.INVALID_RECORD_STATE,))
_ACCEPTED_SHARE = 0.85  # the rest is released


@dataclass(slots=True, kw_only=True)
class _Shared(Received):
    message: Message


class KafkaShare(HttpQueue):
    """A share group on a topic that Kafka producers write to."""

    name = "kafka-share"
    topic = "shared-work"
    group = "share-workers"

    def consumer(self, chance: random.Random) -> Consumer:
        return _ShareConsumer(self.site, self.group, self.topic)

    def _note(
        self, process: str, received: list[Received], start: float, call: str, lease_seconds: float
    ) -> list[Received]:
        """Record deliveries. Their leases began when the client fetched them, before this."""
        super()._note(process, received, start, call, 0.0)
        return received

    def _choose(self, worker: Worker, one: Received) -> None:
        # The client polls again only if everything it gave out was acknowledged somehow.
        if self.site.draining.is_set() or worker.chance.random() < _ACCEPTED_SHARE:
            self._ack_once(worker, one)  # The client cannot repeat what it has sent.
        else:
            self._change(worker, one, Kind.RELEASE, 0)


class _ShareConsumer(Consumer):
    def __init__(self, site: Site, group: str, topic: str) -> None:
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": site.bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def receive(self, lease_seconds: int) -> list[Received] | None:
        try:
            polled = self._consumer.poll(POLL_SECONDS)
        except KafkaException as error:
            self.note = str(error)
            return None
        return [
            _Shared(
                value=(one.value() or b"").decode(),
                receipt=f"{one.partition()}-{one.offset()}-{one.delivery_count()}",
                message=one,
            )
            for one in polled
            if one.error() is None
        ]

    def ack(self, one: Received) -> Outcome:
        return self._settle(one, AcknowledgeType.ACCEPT)

    def release(self, one: Received) -> Outcome:
        return self._settle(one, AcknowledgeType.RELEASE)

    def _settle(self, one: Received, how: AcknowledgeType) -> Outcome:
        assert isinstance(one, _Shared)
        self.note = ""
        try:
            self._consumer.acknowledge(one.message, how)
            errors = [
                error for error in self._consumer.commit_sync(COMMIT_SECONDS).values() if error
            ]
        except KafkaException as error:
            errors = [error]
        if not errors:
            return Outcome.OK
        self.note = str(errors[0])
        found = errors[0].args[0] if isinstance(errors[0], KafkaException) else errors[0]
        return Outcome.REFUSED if found.code() in _REFUSALS else Outcome.UNKNOWN
