"""The listeners for clients: one per configured address, with one front end per protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from goqueue.config import Address, Settings
from goqueue.config.listener_kinds import SASL_PLAINTEXT, SSL, ListenerAddress
from goqueue.model.session import ListenerRules
from goqueue.runtime.budgets import UnsentBudget
from goqueue.runtime.listening import ConnectionLimits, Listener
from goqueue.runtime.sockets import SHARED_BUFFER_BYTES, Connect
from goqueue.runtime.tls.clients import ClientTls
from goqueue.runtime.tls.handshakes import Pace, Tls
from goqueue.runtime.turns import Turns

KAFKA = "kafka"
GRPC = "grpc"
# To clients that use HTTP without TLS; the same for all applications, because none is reached.
PLAIN_HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: 50\r\n\r\nThis port uses TLS; use an address with https://.\n"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientListener:
    """A listener for clients, with its settings."""

    protocol: str
    settings: ListenerAddress
    advertised: Address | None
    listener: Listener

    @property
    def name(self) -> str:
        return self.settings.name


class ClientListeners:
    """All listeners for clients of a node, in the order of the settings."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        connect: Mapping[str, Connect],
        tls: ClientTls | None,
        pace: Pace,
    ) -> None:
        """`connect` has the front end of each protocol."""
        self._loop = loop
        self._settings = settings
        self._tls = tls
        self._pace = pace
        self._unsent = UnsentBudget(settings.listeners.unsent_bytes_total_max)
        # One for all Kafka listeners, so that one call sends the responses of all of them.
        self.kafka_turns = Turns(loop, memoryview(bytearray(SHARED_BUFFER_BYTES)))
        self.all = [
            ClientListener(
                protocol,
                one,
                settings.listeners.advertised(one),
                self._make(protocol, one, connect),
            )
            for protocol, listeners in settings.listeners.of_clients().items()
            for one in listeners
        ]

    def of(self, protocol: str) -> Iterator[ClientListener]:
        return (one for one in self.all if one.protocol == protocol)

    def accept(self) -> None:
        for one in self.all:
            one.listener.accept()

    def close(self) -> None:
        for one in self.all:
            one.listener.close()

    def _make(
        self, protocol: str, listener: ListenerAddress, connect: Mapping[str, Connect]
    ) -> Listener:
        return Listener(
            self._loop,
            connect[protocol],
            _limits(self._settings, protocol),
            rules_of(self._settings, listener),
            tls=self._tls_of(protocol) if listener.is_encrypted else None,
            unsent=self._unsent,
            turns=self.kafka_turns if protocol == KAFKA else None,
        )

    def _tls_of(self, protocol: str) -> Tls:
        assert self._tls is not None
        if protocol == KAFKA:
            return Tls(self._tls.accept, self._pace, revocations=self._tls.revocations)
        if protocol == GRPC:
            return Tls(self._tls.accept_grpc, self._pace, revocations=self._tls.revocations)
        return Tls(
            self._tls.accept_http,
            self._pace,
            plain_answer=PLAIN_HTTP_ANSWER,
            revocations=self._tls.revocations,
        )


def rules_of(settings: Settings, listener: ListenerAddress) -> ListenerRules:
    """What a listener requires of its clients."""
    return ListenerRules(
        listener.name,
        is_encrypted=listener.is_encrypted,
        must_authenticate=settings.security.must_authenticate(listener),
        sasl_mechanisms=settings.security.sasl_mechanisms if listener.has_sasl else (),
        uses_certificates=listener.security == SSL,
    )


def warn_of_readable_credentials(settings: Settings) -> None:
    """Log which listeners receive credentials from other machines without encryption."""
    for one in settings.listeners.all_of_clients():
        if one.security == SASL_PLAINTEXT and not one.address.is_loopback:
            _log.warning(
                "listener %s: clients send their credentials to %s without encryption, so that "
                "others on the network can read them; use sasl_ssl://%s",
                one.name,
                one,
                one.address,
            )


def _limits(settings: Settings, protocol: str) -> ConnectionLimits:
    listeners = settings.listeners
    if protocol == GRPC:
        return ConnectionLimits(
            connections_max=listeners.grpc_connections_max,
            connections_per_address_max=listeners.connections_per_address_max,
            idle_timeout_ms=listeners.grpc_idle_timeout_ms,
            receive_bytes_total_max=listeners.receive_buffer_bytes_total_max,
        )
    if protocol != KAFKA:
        return ConnectionLimits(
            connections_max=listeners.http_connections_max,
            connections_per_address_max=listeners.connections_per_address_max,
            idle_timeout_ms=listeners.http_idle_timeout_ms,
            receive_bytes_total_max=listeners.receive_buffer_bytes_total_max,
        )
    return ConnectionLimits(
        connections_max=listeners.connections_max,
        connections_per_address_max=listeners.connections_per_address_max,
        idle_timeout_ms=listeners.idle_timeout_ms,
        receive_bytes_total_max=listeners.receive_buffer_bytes_total_max,
        send_buffer_bytes=listeners.send_buffer_bytes,
    )
