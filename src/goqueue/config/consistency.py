"""Finds settings that are valid each by itself, but contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from goqueue.config.kinds import UNLIMITED
from goqueue.config.listeners import PLAINTEXT
from goqueue.config.settings import SETTINGS, Settings


def contradictions(settings: Settings) -> list[str]:
    """Check for values that are valid but contradict each other; one sentence per problem."""

    def told(path: str) -> str:
        section, name = path.split(".")
        value = getattr(getattr(settings, section), name)
        source = settings.sources.get(path, "default")
        return f"{path} = {SETTINGS[path].about.kind.show(value)} ({source})"

    checks = (_open_listeners, _senseless_addresses, _what_does_not_fit, _senseless_times, _nodes)
    return [fault for check in checks for fault in check(settings, told)]


_Tell = Callable[[str], str]


def _open_listeners(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    for name in ("kafka", "http", "registry"):
        is_open = not listeners.allow_unauthenticated
        is_open = is_open and getattr(listeners, f"{name}_security") == PLAINTEXT
        if is_open and not getattr(listeners, name).is_loopback:
            yield (
                f"{told(f'listeners.{name}')}: other machines could connect without "
                f"authentication; require it with listeners.{name}_security = sasl_plaintext, or "
                "pass --allow-unauthenticated to allow it"
            )
    is_open = listeners.sqs_security == PLAINTEXT and not settings.sqs.access_keys
    if not listeners.sqs.is_loopback and is_open:
        yield (
            f"{told('listeners.sqs')}: other machines could connect without authentication; set "
            "sqs.access_keys, with which clients sign their requests"
        )


def _senseless_addresses(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    for name, who in (("kafka", "clients"), ("internal", "other nodes")):
        bound, advertised = getattr(listeners, name), getattr(listeners, f"{name}_advertised")
        if bound.is_wildcard and advertised is None:
            yield (
                f"{told(f'listeners.{name}')}: {who} cannot connect to a wildcard address; "
                f"name the address to advertise with --advertise-{name} HOST:PORT"
            )
    for name, who in (("kafka", "clients"), ("http", "clients"), ("internal", "other nodes")):
        advertised = getattr(listeners, f"{name}_advertised")
        if advertised is not None and advertised.is_wildcard:
            yield (
                f"{told(f'listeners.{name}_advertised')}: {who} cannot connect to a wildcard "
                "address; name a host"
            )


def _what_does_not_fit(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    # Percent-encoding may turn each byte of a batch into three.
    if 3 * settings.sqs.message_bytes_max > listeners.http_body_bytes_max:
        yield (
            f"{told('sqs.message_bytes_max')} does not fit into a request body: "
            f"{told('listeners.http_body_bytes_max')} must be at least three times as large"
        )
    for name in ("http_body_bytes_max", "request_bytes_max"):
        if getattr(listeners, name) > listeners.receive_buffer_bytes_total_max:
            yield (
                f"{told(f'listeners.{name}')} does not fit into "
                f"{told('listeners.receive_buffer_bytes_total_max')}"
            )
    if settings.topics.message_bytes_max > listeners.request_bytes_max:
        yield (
            f"{told('topics.message_bytes_max')} does not fit into a request: "
            f"{told('listeners.request_bytes_max')}"
        )


def _senseless_times(settings: Settings, told: _Tell) -> Iterator[str]:
    groups, cluster, compaction = settings.groups, settings.cluster, settings.compaction
    if groups.session_ms_min > groups.session_ms_max:
        yield f"{told('groups.session_ms_min')} is above {told('groups.session_ms_max')}"
    if groups.consumer_heartbeat_ms >= groups.consumer_session_ms:
        yield (
            f"{told('groups.consumer_heartbeat_ms')} must be shorter than "
            f"{told('groups.consumer_session_ms')}"
        )
    if 2 * cluster.heartbeat_ms > cluster.session_ms:
        yield (
            f"{told('cluster.heartbeat_ms')} must be at most half of {told('cluster.session_ms')}, "
            "or one lost heartbeat would count as a failed node"
        )
    if UNLIMITED != compaction.lag_max_ms < compaction.lag_min_ms:
        yield f"{told('compaction.lag_min_ms')} is above {told('compaction.lag_max_ms')}"


def _nodes(settings: Settings, told: _Tell) -> Iterator[str]:
    cluster = settings.cluster
    if cluster.peers and cluster.discovery is not None:
        yield (
            f"{told('cluster.peers')} and {told('cluster.discovery')} both define the initial "
            "voters; use one of them"
        )
    if cluster.secret and cluster.secret_file is not None:
        yield (
            f"{told('cluster.secret')} and {told('cluster.secret_file')} both define the secret; "
            "use one of them"
        )
    if cluster.secret_previous and not cluster.secret:
        yield f"{told('cluster.secret_previous')} needs cluster.secret, the current secret"
    tls = ("tls_certificate", "tls_key", "tls_authorities")
    absent = [f"cluster.{one}" for one in tls if getattr(cluster, one) is None]
    if 0 < len(absent) < len(tls):
        given = next(told(f"cluster.{one}") for one in tls if f"cluster.{one}" not in absent)
        yield f"{given} needs {' and '.join(absent)} too; give all three, or none"
