"""The quotas in effect on this node.

While there are none, `is_active` is False and nobody has a meter. Buckets outlive connections, so
that a client does not escape its debt by connecting again; a bucket that is full is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from goqueue.broker.controller.metadata import FactLog, done
from goqueue.broker.queues.records import Received
from goqueue.broker.quotas.meters import CountLimit, Environment, Meter, RateLimit, rate_of
from goqueue.cluster.facts import Decision, Forget
from goqueue.cluster.identity_commands import ChangeQuota
from goqueue.cluster.identity_facts import QUOTA_PREFIX, QuotaFact
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import InFlightQuotaReached, QuotaReached
from goqueue.model.observer import QUOTA_EVENTS, Observer, interested
from goqueue.model.quotas import (
    CONNECTIONS,
    GROUPS,
    IN_FLIGHT,
    IP,
    LIMITS,
    NEW_CONNECTIONS,
    REQUEST_PERCENTAGE,
    SCHEDULED,
    STORAGE_BYTES,
    TENANT,
    TRANSACTIONAL_IDS,
    Entity,
    check_limits,
)
from goqueue.model.session import NOBODY, Session, unpack_session
from goqueue.model.tenants import tenant_of
from goqueue.tenancy.quotas import AppliedLimit, Bucket, BucketKey, QuotaTable
from goqueue.tenancy.shares import REPORT_MS

SWEEP_MS = 10_000
METERS_MAX = 20_000  # then all are made again at their next use
BUCKETS_MAX = 50_000  # further clients share one bucket for each limit, until others are full
_OVERFLOW: Entity = ()

_Identity = tuple[str, str, str]


class Usage(NamedTuple):
    """How much of a limit an entity uses."""

    key: BucketKey
    limit: float  # of the cluster
    share: float  # of this node; the limit itself for counts
    used: float  # per second, or how many there are
    wait_ms: int


class Quotas:
    """Limits by client, and admission of what they limit."""

    def __init__(self, clock: Clock, log: FactLog, *, observer: Observer | None = None) -> None:
        self.table = QuotaTable()
        self.is_active = False
        self.epoch = 0  # moves with each change
        self.rates: dict[BucketKey, RateLimit] = {}
        self.counts: dict[BucketKey, CountLimit] = {}
        self.measure: Callable[[CountLimit], None] = _measure_nothing
        # In a cluster: gives a new bucket the share of this node.
        self.share: Callable[[RateLimit], None] | None = None
        self.on_tick: Callable[[], None] | None = None
        self._clock = clock
        self._log = log
        self._environment = Environment(clock, interested(observer, QUOTA_EVENTS))
        self._meters: dict[_Identity, Meter] = {}
        self._on_change: list[Callable[[], None]] = []
        self._timer: Handle | None = None
        self._swept_ms = clock.now_ms()
        # The meter of those that must request a new one.
        self.stale = Meter(self._environment, NOBODY, {})
        self.stale.expire()
        log.on_applied(self._applied)
        self._rebuild()

    # Quotas

    def all(self) -> list[QuotaFact]:
        return [fact for _, fact in sorted(self._log.metadata.quotas.items())]

    def change(self, entity: Entity, changes: dict[str, float | None]) -> Promise[None]:
        """Change limits of an entity; None removes one."""
        check_limits(entity, changes)
        return done(self._log.request(ChangeQuota(entity, changes)))

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` when quotas have changed, so that meters are requested again."""
        self._on_change.append(changed)

    def _applied(self, decision: Decision) -> None:
        if any(
            isinstance(one, QuotaFact)
            or (isinstance(one, Forget) and one.key.startswith(QUOTA_PREFIX))
            for one in decision
        ):
            self._rebuild()

    def _rebuild(self) -> None:
        facts = self._log.metadata.quotas.values()
        was_active = self.is_active
        self.table = QuotaTable((one.entity, one.limits) for one in facts)
        self.is_active = not self.table.is_empty
        self.epoch += 1
        if not self.is_active and not was_active:
            return
        self._drop_meters()
        self._renew_counts()
        for changed in self._on_change:
            changed()
        if self.is_active and self._timer is None:
            self._timer = self._clock.call_later(REPORT_MS, self._tick)

    def _drop_meters(self) -> None:
        for meter in self._meters.values():
            meter.expire()
        self._meters.clear()

    def _renew_counts(self) -> None:
        """Give known counts their new limits, and forget those that are no longer limited."""
        for key, count in list(self.counts.items()):
            limits = self._limits_of(key.entity)
            value = next((one.value for one in limits if one.key == key), None)
            if value is None:
                del self.counts[key]
            else:
                count.limit = value

    def _limits_of(self, entity: Entity) -> list[AppliedLimit]:
        [(kind, name)] = entity
        if kind == TENANT:
            return self.table.of_tenant(name)
        return self.table.of_ip(name) if kind == IP else self.table.of_client(name, "", "")

    # Clients

    def meter(self, session: Session) -> Meter | None:
        """Return the limits of a client; None if it has none."""
        if not self.is_active:
            return None
        client_id = session.client_id if self.table.uses_client_ids else ""
        identity = (session.principal, client_id, session.tenant)
        known = self._meters.get(identity)
        if known is None:
            if len(self._meters) >= METERS_MAX:
                self._drop_meters()
            shared = msgspec.structs.replace(session, client_id=client_id, client_host="")
            known = self._meters[identity] = self._new_meter(shared)
        return known

    def _new_meter(self, session: Session) -> Meter:
        rates: dict[str, list[RateLimit]] = {}
        for one in self.table.of_client(session.user, session.client_id, session.tenant):
            if LIMITS[one.key.limit].is_rate:
                rates.setdefault(one.key.limit, []).append(self._rate(one))
        return Meter(
            self._environment, session, rates, self.tenant_count(session.tenant, STORAGE_BYTES)
        )

    def _rate(self, applied: AppliedLimit) -> RateLimit:
        """Return the bucket of a limit; its debt outlives changes of the limit."""
        key, now_ms = applied.key, self._clock.now_ms()
        rate = rate_of(key.limit, applied.value)
        known = self.rates.get(key)
        if known is None and len(self.rates) >= BUCKETS_MAX:
            key = BucketKey(key.limit, _OVERFLOW)
            known = self.rates.get(key)
        if known is None:
            known = self.rates[key] = RateLimit(key, rate, Bucket(rate, now_ms))
            known.is_shared = self.share is not None and key.limit != REQUEST_PERCENTAGE
            if known.is_shared and self.share is not None:
                self.share(known)
        elif known.limit != rate:
            part = known.bucket.rate / known.limit
            known.limit = rate
            known.bucket.change_rate(rate * part if known.is_shared else rate, now_ms)
            known.held = known.bucket.rate if known.held else 0.0
        return known

    def check_produce(self, session: Session, records: Sequence[Record]) -> None:
        """Charge records that a client publishes; raise if it has to wait or may not."""
        meter = self.meter(session)
        if meter is not None:
            meter.check_produce()
            meter.produced(sum(map(size_of, records)), len(records))
            meter.take_wait()

    def check_consume(self, session: Session) -> None:
        """Raise if a client has to wait before it reads more."""
        meter = self.meter(session)
        if meter is not None:
            meter.check_consume()

    def consumed(self, session: Session, size: int, count: int) -> None:
        """Charge records that a client has read; its next read may have to wait."""
        meter = self.meter(session)
        if meter is not None:
            meter.consumed(size, count)
            meter.take_wait()

    def allowance(self, session: Session) -> Allowance:
        """Return how much a call may read for a client that `check_consume` has admitted."""
        return Allowance(self.meter(session))

    def charge_job(self, started_by: bytes, records: Sequence[Record]) -> int:
        """Charge what a job has written for the packed session of who started it.

        Returns how long the job should wait before it goes on, by what it has written so far.
        """
        if not self.is_active or not started_by:
            return 0
        meter = self.meter(unpack_session(started_by))
        if meter is None:
            return 0
        if records:
            meter.produced(sum(map(size_of, records)), len(records))
            meter.take_wait()
        return REPORT_MS if meter.is_storage_full else meter.produce_wait_ms()

    def mutate(self, session: Session, count: int) -> None:
        """Charge partitions to be created or deleted; raise if the client has to wait."""
        meter = self.meter(session)
        if meter is not None:
            meter.check_mutation()
            meter.mutated(count)
            meter.take_wait()

    # Counts

    def tenant_count(self, tenant: str, limit: str) -> CountLimit | None:
        """Return the most of something that a tenant may have; None without a limit."""
        if not self.table.has_tenants:
            return None
        value = self.table.tenant_limit(tenant, limit)
        if value is None:
            return None
        return self._count(BucketKey(limit, ((TENANT, tenant),)), value)

    def _count(self, key: BucketKey, value: float) -> CountLimit:
        known = self.counts.get(key)
        if known is None:
            known = self.counts[key] = CountLimit(key, value)
            self.measure(known)
        return known

    def check_groups(self, name: str) -> None:
        """Raise if the tenant of a new group has as many as it may."""
        count = self.tenant_count(tenant_of(name), GROUPS)
        if count is None:
            return
        self.measure(count)
        if not count.room:
            raise QuotaReached(GROUPS, int(count.limit))

    def check_room(self, tenant: str, limit: str, wanted: int) -> None:
        """Raise unless a tenant may have so many of something that this node counts for all."""
        most = self.table.tenant_limit(tenant, limit)
        if most is not None and wanted > most:
            raise QuotaReached(limit, int(most))

    def check_transactional_ids(self, name: str, here: int) -> None:
        """Raise if the tenant of a new transactional id has as many as it may, `here` of them."""
        tenant = tenant_of(name)
        elsewhere = 0.0
        if self.table.has_own_limit(tenant, TRANSACTIONAL_IDS):
            count = self.tenant_count(tenant, TRANSACTIONAL_IDS)
            elsewhere = 0 if count is None else count.elsewhere
        self.check_room(tenant, TRANSACTIONAL_IDS, here + int(elsewhere) + 1)

    def check_scheduled(self, topic: str, more: int) -> None:
        """Count delayed messages for a topic; raise if its tenant may not have so many."""
        count = self.tenant_count(tenant_of(topic), SCHEDULED)
        if count is not None:
            if count.room < more:
                raise QuotaReached(SCHEDULED, int(count.limit))
            count.here += more

    def lease_room(self, group: str, wanted: int) -> int:
        """Return how many messages a group may lease; raise if there can be none."""
        if not self.table.has_tenants:
            return wanted
        count = self.tenant_count(tenant_of(group), IN_FLIGHT)
        if count is None:
            return wanted
        if not count.room:
            self.measure(count)  # Some may have been settled since.
            if not count.room:
                raise InFlightQuotaReached(IN_FLIGHT, int(count.limit))
        return min(wanted, count.room)

    def received(
        self, session: Session, group: str, received: Received | None, _: Exception | None
    ) -> None:
        """Charge messages that a client has leased."""
        if received is None or not received.count:
            return
        self.consumed(session, received.size, received.count)
        self.leased(group, received.count)

    def leased(self, group: str, count: int) -> None:
        """Count messages that a group has leased among those in flight."""
        if not self.table.has_tenants:
            return
        limit = self.tenant_count(tenant_of(group), IN_FLIGHT)
        if limit is not None:
            limit.here += count

    # Connections

    def admits(self, host: str, connected: int) -> bool:
        """Return whether an address may open a connection besides those that it has."""
        if not self.is_active or not self.table.has_ips:
            return True
        for one in self.table.of_ip(host):
            if one.key.limit == CONNECTIONS:
                count = self._count(one.key, one.value)
                count.here = connected
                if not count.room:
                    return False
            elif one.key.limit == NEW_CONNECTIONS:
                bucket = self._rate(one).bucket
                now_ms = self._clock.now_ms()
                if bucket.wait_ms(now_ms):
                    return False
                bucket.take(1, now_ms)
        return True

    def connection_counts(self, session: Session) -> list[CountLimit]:
        """Return the counts of connections that limit a client."""
        limits = self.table.of_client(session.user, session.client_id, session.tenant)
        return [self._count(one.key, one.value) for one in limits if one.key.limit == CONNECTIONS]

    def report(self, session: Session, limit: str) -> None:
        """Report that a client was refused because of a quota."""
        if self._environment.observer is not None:
            self._environment.observer.throttled(session, limit, 0)

    # Upkeep

    def usage(self) -> list[Usage]:
        """Return how much of the limits is used on this node."""
        now_ms = self._clock.now_ms()
        rates = [
            Usage(
                one.key,
                one.limit,
                one.bucket.rate,
                max(0.0, one.bucket.rate - one.bucket.left(now_ms)),
                one.bucket.wait_ms(now_ms),
            )
            for one in self.rates.values()
        ]
        counts = [Usage(one.key, one.limit, one.limit, one.here, 0) for one in self.counts.values()]
        return sorted(rates + counts)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        for count in self.counts.values():
            self.measure(count)
        if self.on_tick is not None:
            self.on_tick()
        if now_ms - self._swept_ms >= SWEEP_MS:
            self._sweep(now_ms)
        is_needed = self.is_active or self.rates
        self._timer = self._clock.call_later(REPORT_MS, self._tick) if is_needed else None

    def _sweep(self, now_ms: int) -> None:
        """Forget what is not used: meters, buckets that are full, and counts of nothing."""
        self._swept_ms = now_ms
        for identity, meter in list(self._meters.items()):
            if now_ms - meter.used_ms >= SWEEP_MS:
                meter.expire()
                del self._meters[identity]
        in_use = {one.key for meter in self._meters.values() for one in meter.rates}
        for key, rate in list(self.rates.items()):
            if key not in in_use and rate.bucket.is_full(now_ms):
                del self.rates[key]
        for key, count in list(self.counts.items()):
            if key.limit == CONNECTIONS and (not count.here or key.entity[0][0] == IP):
                del self.counts[key]


def _measure_nothing(_: CountLimit) -> None:
    """Used until the node can measure."""


class Allowance:
    """How much one call may read for a client: it is charged until the client has to wait."""

    def __init__(self, meter: Meter | None) -> None:
        self._meter = meter
        self.is_used_up = False

    def charge(self, records: Sequence[Record]) -> None:
        meter = self._meter
        if meter is not None:
            meter.consumed(sum(map(size_of, records)), len(records))
            self.is_used_up |= meter.take_wait() > 0


def size_of(record: Record) -> int:
    """Return the bytes of a record: its key, its value and its headers."""
    size = len(record.value or b"") + len(record.key or b"")
    for header in record.headers:
        size += len(header[0]) + len(header[1] or b"")
    return size
