"""The limits of one client, charged per batch and per request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from goqueue.loop.clock import Clock
from goqueue.model.errors import QuotaExceeded, StorageQuotaReached
from goqueue.model.observer import Observer
from goqueue.model.quotas import (
    CONSUMER_BYTES,
    CONSUMER_MESSAGES,
    MUTATIONS,
    PRODUCER_BYTES,
    PRODUCER_MESSAGES,
    REQUEST_PERCENTAGE,
    REQUESTS,
)
from goqueue.model.session import Session
from goqueue.tenancy.quotas import Bucket, BucketKey

FETCH_BYTES_MIN = 1  # a fetch returns one batch at least, so this is enough for progress
MICROSECONDS_PER_PERCENT = 10_000  # of the loop's time in a second


class RateLimit:
    """A rate of an entity, and the bucket that holds it on this node."""

    __slots__ = ("bucket", "held", "is_shared", "key", "limit", "reported_ms")

    def __init__(self, key: BucketKey, limit: float, bucket: Bucket) -> None:
        self.key = key
        self.limit = limit
        self.bucket = bucket
        self.is_shared = False  # among the nodes of a cluster
        self.held = 0.0  # the share of this node; 0 while it has none
        self.reported_ms = 0


class CountLimit:
    """The most of something that an entity may have in the cluster."""

    __slots__ = ("elsewhere", "here", "key", "limit")

    def __init__(self, key: BucketKey, limit: float) -> None:
        self.key = key
        self.limit = limit
        self.here = 0  # on this node
        self.elsewhere = 0.0  # on the others, as last reported

    @property
    def room(self) -> int:
        """How many more there may be."""
        return max(0, int(self.limit - self.here - self.elsewhere))


class Environment(NamedTuple):
    """What all meters of a node share."""

    clock: Clock
    observer: Observer | None  # of waits


class Meter:
    """The limits of the clients of one identity.

    Whoever charges a batch calls `take_wait` right after, in the same step, and delays or refuses
    what follows.
    """

    def __init__(
        self,
        environment: Environment,
        session: Session,
        rates: Mapping[str, Sequence[RateLimit]],
        storage: CountLimit | None = None,
    ) -> None:
        self.is_stale = False  # quotas have changed, or it was not used for long: request it again
        self.used_ms = environment.clock.now_ms()
        self.rates = [one for some in rates.values() for one in some]
        self._now_ms = environment.clock.now_ms
        self._observer = environment.observer
        self._session = session
        self.owed_ms = 0  # how long to wait for what was charged since the last `take_wait`
        self._produced = rates.get(PRODUCER_BYTES, ())
        self._produced_messages = rates.get(PRODUCER_MESSAGES, ())
        self._consumed = rates.get(CONSUMER_BYTES, ())
        self._consumed_messages = rates.get(CONSUMER_MESSAGES, ())
        self._requests = rates.get(REQUESTS, ())
        self._time = rates.get(REQUEST_PERCENTAGE, ())
        self._mutations = rates.get(MUTATIONS, ())
        # Small batches are charged together: up to what may be written in a millisecond.
        self._uncharged = 0
        self._slack = min((one.limit for one in self._produced), default=inf) / 1_000
        self._storage = storage
        self.counts_produced = bool(self._produced_messages)
        self.counts_consumed = bool(self._consumed_messages)
        self.counts_requests = bool(self._requests)
        self.measures_time = bool(self._time)
        # Whether requests cost nothing besides the batches that they have.
        self.is_plain = not (self.counts_requests or self.measures_time)

    def expire(self) -> None:
        """Let those that use it request a new one."""
        self.is_stale, self.is_plain = True, False

    # Charges

    def produced(self, size: int, count: int) -> None:
        """Charge stored batches: their bytes and, if `counts_produced`, their records."""
        self._uncharged += size
        if self._uncharged > self._slack:
            size_total, self._uncharged = self._uncharged, 0
            self._take(self._produced, size_total)
        if count and self._produced_messages:
            self._take(self._produced_messages, count)
        if self._storage is not None:
            self._storage.here += size

    def consumed(self, size: int, count: int) -> None:
        """Charge delivered batches: their bytes and, if `counts_consumed`, their records."""
        if size and self._consumed:
            self._take(self._consumed, size)
        if count and self._consumed_messages:
            self._take(self._consumed_messages, count)

    def requested(self, count: int) -> None:
        """Charge requests of any kind."""
        if count and self._requests:
            self._take(self._requests, count)

    def worked(self, microseconds: int) -> None:
        """Charge time of the event loop."""
        if self._time:
            self._take(self._time, microseconds)

    def mutated(self, count: int) -> None:
        """Charge partitions that are created or deleted."""
        if self._mutations:
            self._take(self._mutations, count)

    def take_wait(self) -> int:
        """Return how long the client has to wait for what it was charged since the last call."""
        wait_ms, self.owed_ms = self.owed_ms, 0
        return wait_ms

    def _take(self, limits: Sequence[RateLimit], amount: int) -> None:
        now_ms = self.used_ms = self._now_ms()
        for one in limits:
            wait_ms = one.bucket.take(amount, now_ms)
            if wait_ms:
                self.owed_ms = max(self.owed_ms, wait_ms)
                self._report(one, wait_ms)

    # Checks

    @property
    def is_storage_full(self) -> bool:
        storage = self._storage
        return storage is not None and not storage.room

    def check_storage(self) -> None:
        """Raise if the tenant stores as much as it may."""
        storage = self._storage
        if storage is not None and not storage.room:
            raise StorageQuotaReached(storage.key.limit, int(storage.limit))

    def check_produce(self) -> None:
        """Raise if the client has to wait before it writes more, or may not at all."""
        self.check_storage()
        self._check(self._produced)
        self._check(self._produced_messages)

    def check_consume(self) -> None:
        """Raise if the client has to wait before it reads more."""
        self._check(self._consumed)
        self._check(self._consumed_messages)

    def check_request(self) -> None:
        """Raise if the client has to wait before its next request."""
        self._check(self._requests)
        self._check(self._time)

    def admit_request(self) -> None:
        """Charge a request; raise if the client has to wait."""
        self.check_request()
        self.requested(1)
        self.take_wait()

    def check_mutation(self) -> None:
        """Raise if the client has to wait before it creates or deletes more partitions."""
        self._check(self._mutations)

    def produce_wait_ms(self) -> int:
        """Return how long the client has to wait before it writes more."""
        return self._wait_ms(self._produced, self._produced_messages)

    def fetch_wait_ms(self) -> int:
        """Return how long the client has to wait before it reads more."""
        return self._wait_ms(self._consumed, self._consumed_messages)

    def _wait_ms(self, *limits: Sequence[RateLimit]) -> int:
        now_ms = self.used_ms = self._now_ms()
        waits = [(one.bucket.wait_ms(now_ms), one) for some in limits for one in some]
        wait_ms, limit = max(waits, key=lambda pair: pair[0], default=(0, None))
        if wait_ms and limit is not None:
            self._report(limit, wait_ms)
        return wait_ms

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Limit a fetch to what the client may read in a second, so that it waits no longer."""
        for one in self._consumed:
            bytes_max = min(bytes_max, max(FETCH_BYTES_MIN, int(one.bucket.rate)))
        return bytes_max

    def _check(self, limits: Sequence[RateLimit]) -> None:
        if not limits:
            return
        now_ms = self.used_ms = self._now_ms()
        for one in limits:
            wait_ms = one.bucket.wait_ms(now_ms)
            if wait_ms:
                self._report(one, wait_ms)
                raise QuotaExceeded(one.key.limit, max(1, int(one.limit)), wait_ms)

    def _report(self, limit: RateLimit, wait_ms: int) -> None:
        if self._observer is not None:
            self._observer.throttled(self._session, limit.key.limit, wait_ms)


def rate_of(limit: str, value: float) -> float:
    """Return the tokens per second of a limit: microseconds for a percentage of the time."""
    return value * MICROSECONDS_PER_PERCENT if limit == REQUEST_PERCENTAGE else value
