"""Finds settings that are valid each by itself, but contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from goqueue.config.kinds import UNLIMITED
from goqueue.config.listener_kinds import ListenerAddress, NamedAddress, repeated
from goqueue.config.security import NO_CERTIFICATES
from goqueue.config.settings import SETTINGS, Settings


def contradictions(settings: Settings) -> list[str]:
    """Check for values that are valid but contradict each other; one sentence per problem."""

    def told(path: str) -> str:
        section, name = path.split(".")
        value = getattr(getattr(settings, section), name)
        source = settings.sources.get(path, "default")
        return f"{path} = {SETTINGS[path].about.kind.show(value)} ({source})"

    checks = (
        _open_listeners,
        _same_listeners,
        _senseless_addresses,
        _certificates,
        _tokens,
        _what_does_not_fit,
        _senseless_times,
        _nodes,
    )
    return [fault for check in checks for fault in check(settings, told)]


_Tell = Callable[[str], str]


def _open_listeners(settings: Settings, told: _Tell) -> Iterator[str]:
    for protocol, listeners in settings.listeners.of_clients().items():
        for one in listeners:
            if one.address.is_loopback or settings.security.must_authenticate(one):
                continue
            what = f"{told(f'listeners.{protocol}')}: other machines could connect to {one} without"
            remedy = (
                f"require it with sasl_ssl://{one.address}, or with ssl:// and "
                "security.tls_client_auth = required"
            )
            if protocol != "sqs":
                if not settings.listeners.allow_unauthenticated:
                    also = "pass --allow-unauthenticated to allow it"
                    yield f"{what} authentication; {remedy}, or {also}"
            elif not settings.sqs.access_keys:
                also = "set sqs.access_keys, with which clients sign their requests"
                yield f"{what} authentication; {remedy}, or {also}"


def _same_listeners(settings: Settings, told: _Tell) -> Iterator[str]:
    names: dict[str, str] = {}
    addresses: dict[str, str] = {}
    if settings.cluster.peers or settings.cluster.discovery is not None:
        addresses[str(settings.listeners.internal)] = "listeners.internal"
    for protocol, listeners in settings.listeners.of_clients().items():
        path = f"listeners.{protocol}"
        for one in listeners:
            other = names.setdefault(one.name.lower(), path)
            if other != path:
                yield f"{told(path)}: {other} has a listener named {one.name!r} too"
            if not one.port:
                continue
            taken_by = addresses.setdefault(str(one.address), f"{path} {one.name}")
            if taken_by != f"{path} {one.name}":
                other, _, _ = taken_by.partition(" ")
                yield f"{told(path)}: {one.address} is also an address of {told(other)}"


def _senseless_addresses(settings: Settings, told: _Tell) -> Iterator[str]:
    listeners = settings.listeners
    for one in listeners.kafka:
        if one.address.is_wildcard and listeners.advertised(one) is None:
            name = "" if one is listeners.kafka[0] else f"{one.name}="
            yield _unreachable(f"{told('listeners.kafka')}: clients", f"kafka {name}HOST:PORT")
    if listeners.internal.is_wildcard and listeners.internal_advertised is None:
        yield _unreachable(f"{told('listeners.internal')}: other nodes", "internal HOST:PORT")
    for protocol, bound in (("kafka", listeners.kafka), ("http", listeners.http)):
        path = f"listeners.{protocol}_advertised"
        yield from _advertised_in_vain(
            getattr(listeners, f"{protocol}_advertised"), bound, path, told
        )
    advertised = listeners.internal_advertised
    if advertised is not None and advertised.is_wildcard:
        yield (
            f"{told('listeners.internal_advertised')}: other nodes cannot connect to a wildcard "
            "address; name a host"
        )


def _advertised_in_vain(
    advertised: tuple[NamedAddress, ...],
    bound: tuple[ListenerAddress, ...],
    path: str,
    told: _Tell,
) -> Iterator[str]:
    names = [one.name for one in bound]
    for one in advertised:
        if one.address.is_wildcard:
            yield (f"{told(path)}: clients cannot connect to a wildcard address; name a host")
        if one.name and one.name not in names:
            yield (
                f"{told(path)}: there is no listener {one.name!r}; the listeners are named "
                f"{', '.join(names)}"
            )
    given = [one.name or names[0] for one in advertised]
    if repeated(given) is not None:
        yield f"{told(path)}: the first listener, {names[0]!r}, has two addresses; give one"


def _unreachable(who: str, flag: str) -> str:
    return (
        f"{who} cannot connect to a wildcard address; name the address to advertise with "
        f"--advertise-{flag}"
    )


def _certificates(settings: Settings, told: _Tell) -> Iterator[str]:
    security = settings.security
    has_certificate = security.tls_certificate is not None
    has_key = security.tls_key is not None
    if has_certificate != has_key:
        given, absent = ("certificate", "key") if has_certificate else ("key", "certificate")
        yield f"{told(f'security.tls_{given}')} needs security.tls_{absent} too"
    elif not has_certificate:
        for protocol, listeners in settings.listeners.of_clients().items():
            if any(one.is_encrypted for one in listeners):
                yield (
                    f"{told(f'listeners.{protocol}')}: TLS needs security.tls_certificate and "
                    "security.tls_key"
                )
    wants_clients = security.tls_client_auth != NO_CERTIFICATES
    if wants_clients and security.tls_client_authorities is None:
        yield f"{told('security.tls_client_auth')} needs security.tls_client_authorities"
    for name in ("tls_client_authorities", "tls_revocation_lists", "tls_principal_rules"):
        if getattr(security, name) and not wants_clients:
            yield (
                f"{told(f'security.{name}')} has no effect; set security.tls_client_auth to "
                "requested or required"
            )


def _tokens(settings: Settings, told: _Tell) -> Iterator[str]:
    security = settings.security
    for name in ("oauth_issuer", "oauth_audience"):
        if security.oauth_jwks and not getattr(security, name):
            yield (
                f"{told('security.oauth_jwks')} needs security.{name}: without it, tokens for "
                "other systems would be accepted"
            )
    for name in ("oauth_subject_claim", "oauth_scope_claim"):
        if not getattr(security, name):
            yield f"{told(f'security.{name}')} must name a claim"


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
    if cluster.tls_revocation_lists is not None and absent:
        yield f"{told('cluster.tls_revocation_lists')} has no effect without {absent[0]}"
