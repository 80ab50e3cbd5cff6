"""Counts requests, connections and bytes by listener. Front ends keep the instruments they use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from goqueue.metrics import Counter, Histogram, Registry
from goqueue.metrics import catalogue as metrics
from goqueue.metrics.traces import sampled_trace

# For requests that name no operation, or none that exists: clients must not be able to add labels.
UNKNOWN_API = "unknown"


class ApiMetrics:
    """The requests of one API at one listener."""

    __slots__ = ("_errors", "_labels", "_registry", "_wall_ms", "duration")

    def __init__(
        self, registry: Registry, wall_ms: Callable[[], int], listener: str, api: str
    ) -> None:
        self.duration: Histogram = registry.histogram(metrics.REQUEST_DURATION, listener, api)
        self._registry = registry
        self._wall_ms = wall_ms
        self._labels = listener, api
        self._errors: dict[str, Counter] = {}

    def answered(self, seconds: float, trace: bytes = b"") -> None:
        """Count a request, with its trace as an exemplar if it has a header of a sampled one."""
        if trace and (trace_id := sampled_trace(trace)):
            self.duration.observe_traced(seconds, trace_id, self._wall_ms())
        else:
            self.duration.observe(seconds)

    def failed(self, code: str, count: int = 1) -> None:
        """Count requests that were answered with an error."""
        known = self._errors.get(code)
        if known is None:
            made = self._registry.counter(metrics.REQUEST_ERRORS, *self._labels, code)
            known = self._errors[code] = made
        known.value += count


class _Apis(dict[str, ApiMetrics]):
    """The instruments of each API at one listener, made when they are first needed."""

    def __init__(self, registry: Registry, wall_ms: Callable[[], int], listener: str) -> None:
        self._new = partial(ApiMetrics, registry, wall_ms, listener)

    def __missing__(self, name: str) -> ApiMetrics:
        made = self[name] = self._new(name)
        return made


class ListenerMetrics:
    """The connections and requests at one listener."""

    __slots__ = ("_registry", "apis", "name", "opened", "received", "sent")

    def __init__(self, registry: Registry, name: str, wall_ms: Callable[[], int] = int) -> None:
        self.name = name
        self.opened: Counter = registry.counter(metrics.LISTENER_CONNECTIONS_OPENED, name)
        self.received: Counter = registry.counter(metrics.LISTENER_RECEIVED_BYTES, name)
        self.sent: Counter = registry.counter(metrics.LISTENER_SENT_BYTES, name)
        self._registry = registry
        self.apis = _Apis(registry, wall_ms, name)  # by names of callers, not of clients

    def refused(self, reason: str) -> None:
        """Count a connection that was refused."""
        self._registry.counter(metrics.LISTENER_CONNECTIONS_REFUSED, self.name, reason).value += 1


# For connections that are not those of clients; nobody exports it.
UNMEASURED = ListenerMetrics(Registry(), "")


class RequestMetrics:
    """The listeners of a node."""

    def __init__(self, registry: Registry, wall_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._wall_ms = wall_ms
        self._listeners: dict[str, ListenerMetrics] = {}

    def listener(self, name: str) -> ListenerMetrics:
        known = self._listeners.get(name)
        if known is None:
            known = self._listeners[name] = ListenerMetrics(self._registry, name, self._wall_ms)
        return known
