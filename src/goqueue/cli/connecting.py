"""Connections of a command to the cluster that it acts on: one cluster, whichever address is given.

A broker has Kafka addresses and HTTP addresses, and a command may need either. If only one is
given, the other is requested from the broker; both must belong to the same cluster (ADR 46). Both
get the same credentials and certificates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from goqueue.cli.access import Access
from goqueue.cli.context import HTTP_PORT_DEFAULT, current_call
from goqueue.cli.remedies import remedies
from goqueue.client import Address, ClientSettings, LogClient, find_http, reachable, read_addresses
from goqueue.client.errors import BrokerUnready, Unreachable
from goqueue.client.http import Client, HttpSettings, RetrySettings
from goqueue.model.errors import AccessDenied, InvalidRequest

if TYPE_CHECKING:
    from goqueue.client.http import Node

# A user waits for the answer: long enough for a broker that restarts, short for a wrong address.
HTTP_SETTINGS = HttpSettings(retry=RetrySettings(retries_max=3))
# How the names of the listeners of a protocol begin, unless they have names of their own.
_KAFKA, _HTTP = "kafka", "http"
_LOOKUP_SETTINGS = ClientSettings(request_ms_max=5_000, retry_ms_max=5_000)


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a command acts on, as shown to the user."""

    cluster_id: str
    address: str
    context: str

    def __str__(self) -> str:
        context = f" (context {self.context})" if self.context else ""
        return f"cluster {self.cluster_id} at {self.address}{context}"


@contextmanager
def connect(ctx: typer.Context) -> Iterator[LogClient]:
    """Connect to the given broker; if that fails, the error says what the user can do."""
    bootstrap, access = kafka_address(ctx), current_call(ctx).access
    with (
        remedies(access),
        no_broker(bootstrap, "-b"),
        kafka_client(bootstrap, access) as client,
    ):
        yield client


@contextmanager
def connect_http(ctx: typer.Context) -> Iterator[Client]:
    """Connect to the given broker; if that fails, the error says what the user can do."""
    address, access = http_address(ctx), current_call(ctx).access
    with (
        remedies(access),
        no_broker(bare(address), "--http", "HTTP "),
        http_client(address, access) as client,
    ):
        yield client


def kafka_client(
    bootstrap: str, access: Access, settings: ClientSettings | None = None
) -> LogClient:
    """A client of a Kafka listener, with the credentials and certificates of this call."""
    settings = settings or ClientSettings()
    return LogClient(bootstrap, replace(settings, tls=access.tls_settings(), sasl=access.sasl()))


def http_client(address: str, access: Access, settings: HttpSettings = HTTP_SETTINGS) -> Client:
    """A client of an HTTP listener, with the credentials and certificates of this call."""
    settings = replace(settings, login=access.http_login(), tls=access.tls_settings())
    return Client(address, settings)


def kafka_address(ctx: typer.Context) -> str:
    """The Kafka address: as given, else as reported by the broker at the HTTP address."""
    call = current_call(ctx)
    if not call.kafka_found:
        named = call.named
        if named.bootstrap is not None:
            call.kafka_found = named.bootstrap
        else:
            assert named.http is not None, "a source has one of the two"
            with remedies(call.access):
                call.kafka_found = _kafka_from_http(named.http, call.access)
    return call.kafka_found


def http_address(ctx: typer.Context) -> str:
    """The HTTP address: as given, else as reported by the broker at the Kafka address."""
    call = current_call(ctx)
    if not call.http_found:
        named = call.named
        if named.bootstrap is None:
            assert named.http is not None, "a source has one of the two"
            call.http_found = named.http
        else:
            with remedies(call.access):
                call.http_found = _http_from_kafka(named.bootstrap, named.http, call.access)
    return call.http_found


def target_of(ctx: typer.Context, client: LogClient | Client) -> Target:
    """The cluster that `client` acts on."""
    call = current_call(ctx)
    if isinstance(client, LogClient):
        if not client.cluster.cluster_id:
            client.cluster.nodes()
        return Target(client.cluster.cluster_id, client.bootstrap, call.named.context)
    cluster_id = client.node.version().cluster_id
    return Target(cluster_id, bare(http_address(ctx)), call.named.context)


def confirm(ctx: typer.Context, client: LogClient | Client, question: str, *, yes: bool) -> None:
    """Ask for confirmation of a destructive command unless `yes`; always print the cluster."""
    if yes:
        announce(ctx, client)
    else:
        typer.confirm(f"{question} on {target_of(ctx, client)}?", abort=True)


def announce(ctx: typer.Context, client: LogClient | Client) -> None:
    """Print on standard error which cluster a command is about to change."""
    typer.echo(f"On {target_of(ctx, client)}:", err=True)


def bare(url: str) -> str:
    """An HTTP address as HOST:PORT."""
    return url.removeprefix("http://").removeprefix("https://").rstrip("/")


@contextmanager
def no_broker(address: str, option: str, protocol: str = "") -> Iterator[None]:
    """Turn a failure to reach a broker into an error that says what the user can do."""
    try:
        yield
    except Unreachable as error:
        raise Unreachable(
            f"No broker answers {protocol}at {address}; start one with `goqueue serve` (or `make "
            f"serve`), or name another with {option} HOST:PORT."
        ) from error


def _http_from_kafka(bootstrap: str, http: str | None, access: Access) -> str:
    """The HTTP address of the cluster at `bootstrap`, after checking that it is of that cluster."""
    with no_broker(bootstrap, "-b"), kafka_client(bootstrap, access, _LOOKUP_SETTINGS) as client:
        try:
            found = http or _stated(find_http(client.cluster), bootstrap)
        except AccessDenied as error:
            raise AccessDenied.with_text(
                "The broker does not tell these credentials its HTTP address, which this command "
                "uses; give it with --http HOST:PORT."
            ) from error
        except BrokerUnready as error:
            raise BrokerUnready(
                f"The broker at {bootstrap} is not ready, so it cannot report its HTTP "
                f"address: {error} Give that address with --http HOST:PORT alone, usually port "
                f"{HTTP_PORT_DEFAULT}."
            ) from error
        if not client.cluster.cluster_id:
            client.cluster.nodes()
        expected = client.cluster.cluster_id
    try:
        with http_client(found, access) as api:
            actual = api.node.version().cluster_id
    except Unreachable as error:
        raise Unreachable(
            f"The broker at {bootstrap} reports its HTTP API at {bare(found)}, which does not "
            "answer from here; give a reachable address with --http HOST:PORT, or set "
            "listeners.http_advertised of the broker."
        ) from error
    _check_same(expected, bootstrap, actual, found)
    return found


def _kafka_from_http(http: str, access: Access) -> str:
    """The Kafka addresses of the cluster at an HTTP address, after the same check."""
    with no_broker(bare(http), "--http", "HTTP "), http_client(http, access) as api:
        expected = api.node.version().cluster_id
        try:
            nodes = api.cluster.nodes()
        except AccessDenied as error:
            raise AccessDenied.with_text(
                "The broker does not tell these credentials its Kafka addresses, which this "
                "command uses; give them with -b HOST:PORT."
            ) from error
        addresses = _kafka_addresses(nodes, read_addresses(bare(http))[0], access)
    if not addresses:
        raise InvalidRequest(
            f"The broker at {bare(http)} does not report its Kafka address; give it with "
            "-b HOST:PORT."
        )
    found = ",".join(map(str, addresses))
    with no_broker(found, "-b"), kafka_client(found, access, _LOOKUP_SETTINGS) as client:
        client.cluster.nodes()
        _check_same(client.cluster.cluster_id, found, expected, http)
    return found


def _kafka_addresses(nodes: list[Node], reached: Address, access: Access) -> list[Address]:
    found = [fitting_kafka_address(one.addresses, access) for one in nodes]
    return [reachable(read_addresses(one)[0], reached) for one in found if one]


def fitting_kafka_address(addresses: Mapping[str, str], access: Access) -> str:
    """The address of the Kafka listener that fits the credentials and certificates best."""
    return _fitting(addresses, access, _KAFKA)[1]


def node_http_addresses(nodes: list[Node], reached: str, access: Access) -> dict[str, Node]:
    """The nodes by their HTTP addresses, seen from the one that was reached.

    A node without a listener that fits is left out.
    """
    is_encrypted = reached.lower().startswith("https://") or access.is_encrypted
    wanted = replace(access, tls=True) if is_encrypted else access
    found: dict[str, Node] = {}
    for node in nodes:
        security, stated = _fitting(node.addresses, wanted, _HTTP)
        if stated:
            scheme = "https" if security.endswith("ssl") else "http"
            address = reachable(read_addresses(stated)[0], read_addresses(bare(reached))[0])
            found[f"{scheme}://{address}"] = node
    return found


def _fitting(addresses: Mapping[str, str], access: Access, protocol: str) -> tuple[str, str]:
    """The security and the address of the listener of a protocol that fits best.

    A node reports its listeners by name, those with TLS or SASL with the word before the address.
    """
    wanted = access.is_encrypted, access.has_login
    best, best_score = ("", ""), -1
    for name, stated in addresses.items():
        if name != protocol and not name.startswith(f"{protocol}-"):
            continue
        security, _, address = stated.rpartition("://")
        has = security.endswith("ssl"), security.startswith("sasl_")
        score = 2 * (has[0] == wanted[0]) + (has[1] == wanted[1])
        if address and score > best_score:
            best, best_score = (security, address), score
    return best


def _stated(address: str | None, bootstrap: str) -> str:
    if address is None:
        raise InvalidRequest(
            f"The broker at {bootstrap} does not report its HTTP address, which this command "
            "uses; give it with --http HOST:PORT."
        )
    return address


def _check_same(kafka_id: str, bootstrap: str, http_id: str, http: str) -> None:
    if kafka_id != http_id:
        raise InvalidRequest(
            f"{bootstrap} (Kafka) belongs to cluster {kafka_id or 'unknown'}, {bare(http)} (HTTP) "
            f"to cluster {http_id or 'unknown'}. Nothing was done; give only one of the two, and "
            "the other is found."
        )
