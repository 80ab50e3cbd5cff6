"""Counts what the gate reports of clients: authentication, denials and waits for quotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from goqueue.metrics import Collector, Registry, Samples
from goqueue.metrics import catalogue as metrics
from goqueue.model.access import Action, Resource
from goqueue.model.observer import Observer
from goqueue.model.session import Session

_ACCEPTED, _REFUSED = "accepted", "refused"
_NONE = "none"  # of clients that sent credentials of no mechanism


class CallCounter(Observer):
    """Counts events of clients, which are rare."""

    observes_traffic = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def authenticated(
        self, session: Session, user: str, *, mechanism: str, error: Exception | None
    ) -> None:
        outcome = _ACCEPTED if error is None else _REFUSED
        self._registry.counter(
            metrics.SECURITY_AUTHENTICATIONS, session.listener, mechanism or _NONE, outcome
        ).value += 1

    def denied(
        self, session: Session, action: Action, resource: Resource, *, operation: str
    ) -> None:
        self._registry.counter(metrics.SECURITY_DENIALS, session.listener).value += 1

    def throttled(self, session: Session, limit: str, wait_ms: int) -> None:
        self._registry.counter(metrics.QUOTA_THROTTLED, limit).value += 1
        self._registry.counter(metrics.QUOTA_THROTTLE, limit).value += wait_ms / 1_000


class Audit(Protocol):
    """How the audit log is written."""

    @property
    def events(self) -> int: ...

    @property
    def lost(self) -> int: ...

    @property
    def waiting(self) -> int: ...


def collector_of_audit(audit: Audit) -> Collector:
    """Return what reads how the audit log is written."""

    def collect(samples: Samples) -> Iterator[None]:
        samples.set(metrics.AUDIT_EVENTS, audit.events)
        samples.set(metrics.AUDIT_LOST, audit.lost)
        samples.set(metrics.AUDIT_WAITING, audit.waiting)
        yield

    return collect
