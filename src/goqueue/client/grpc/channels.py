"""Channels of the gRPC library, and the metadata of calls. Loaded with the first client."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import grpc

from goqueue.client.grpc.settings import GrpcSettings, Target
from goqueue.client.security.settings import TlsSettings
from goqueue.model.errors import InvalidRequest

# The library waits longer and longer between attempts to connect; calls that fail meanwhile are
# retried by the client, which waits itself.
_RECONNECT_MS_MIN, _RECONNECT_MS_MAX = 100, 2_000

T = TypeVar("T")


def options(settings: GrpcSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_send_message_length", -1),  # the broker has a limit of its own
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS_MIN),
        ("grpc.min_reconnect_backoff_ms", settings.connect_ms_max),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS_MAX),
        ("grpc.keepalive_time_ms", settings.keepalive_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.enable_retries", 0),  # the client knows which calls may be repeated
        ("grpc.enable_http_proxy", 0),  # a proxy for web pages would interrupt streams
        # Clients of one process share no connection, so each has its own credentials and limits.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def credentials(target: Target, settings: GrpcSettings) -> grpc.ChannelCredentials | None:
    """What the connection is encrypted with; None without TLS."""
    tls = settings.tls
    if not target.is_encrypted or tls is None:
        return None
    if not tls.checks_host:
        raise InvalidRequest("A gRPC client always checks the name in the certificate.")
    if tls.key_password:
        raise InvalidRequest("A gRPC client needs a key without a password.")
    certificate = tls.certificate_text.encode() or _content(tls.certificate_file)
    key = _content(tls.key_file) if tls.key_file else certificate
    return grpc.ssl_channel_credentials(
        tls.ca_text.encode() or _authorities(tls), key or None, certificate or None
    )


def metadata(settings: GrpcSettings) -> list[tuple[str, str]]:
    """The metadata of a call, with the secret as it is now."""
    given = [(name.lower(), value) for name, value in settings.metadata.items()]
    if settings.login is not None:
        given.append(("authorization", settings.login.header()))
    return given


def _authorities(tls: TlsSettings) -> bytes | None:
    """The certificates of authorities; those of the system, which the library does not read."""
    if tls.ca_file:
        return _content(tls.ca_file)
    import ssl

    system = ssl.get_default_verify_paths().cafile
    return _content(system) if system else None


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes() if file else b""
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from error
