"""Connections of a command to the cluster that it acts on: one cluster, whichever address is given.

A broker has a Kafka address and an HTTP address, and a command may need either. If only one is
given, the other is requested from the broker; both must belong to the same cluster (ADR 46).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from goqueue.cli.context import HTTP_PORT_DEFAULT, current_call
from goqueue.client import Address, ClientSettings, LogClient, find_http, reachable, read_addresses
from goqueue.client.errors import BrokerUnready, Unreachable
from goqueue.client.http import Client, HttpSettings, RetrySettings
from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from goqueue.client.http import Node

# A user waits for the answer: long enough for a broker that restarts, short for a wrong address.
HTTP_SETTINGS = HttpSettings(retry=RetrySettings(retries_max=3))
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
    bootstrap = kafka_address(ctx)
    with no_broker(bootstrap, "-b"), LogClient(bootstrap) as client:
        yield client


@contextmanager
def connect_http(ctx: typer.Context) -> Iterator[Client]:
    """Connect to the given broker; if that fails, the error says what the user can do."""
    address = http_address(ctx)
    with no_broker(bare(address), "--http", "HTTP "), Client(address, HTTP_SETTINGS) as client:
        yield client


def kafka_address(ctx: typer.Context) -> str:
    """The Kafka address: as given, else as reported by the broker at the HTTP address."""
    call = current_call(ctx)
    if not call.kafka_found:
        named = call.named
        if named.bootstrap is not None:
            call.kafka_found = named.bootstrap
        else:
            assert named.http is not None, "a source has one of the two"
            call.kafka_found = _kafka_from_http(named.http)
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
            call.http_found = _http_from_kafka(named.bootstrap, named.http)
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
    return url.removeprefix("http://").rstrip("/")


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


def _http_from_kafka(bootstrap: str, http: str | None) -> str:
    """The HTTP address of the cluster at `bootstrap`, after checking that it is of that cluster."""
    with no_broker(bootstrap, "-b"), LogClient(bootstrap, _LOOKUP_SETTINGS) as client:
        try:
            found = http or _stated(find_http(client.cluster), bootstrap)
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
        with Client(found, HTTP_SETTINGS) as api:
            actual = api.node.version().cluster_id
    except Unreachable as error:
        raise Unreachable(
            f"The broker at {bootstrap} reports its HTTP API at {bare(found)}, which does not "
            "answer from here; give a reachable address with --http HOST:PORT, or set "
            "listeners.http_advertised of the broker."
        ) from error
    _check_same(expected, bootstrap, actual, found)
    return found


def _kafka_from_http(http: str) -> str:
    """The Kafka addresses of the cluster at an HTTP address, after the same check."""
    with no_broker(bare(http), "--http", "HTTP "), Client(http, HTTP_SETTINGS) as api:
        expected = api.node.version().cluster_id
        addresses = _kafka_addresses(api.cluster.nodes(), read_addresses(bare(http))[0])
    if not addresses:
        raise InvalidRequest(
            f"The broker at {bare(http)} does not report its Kafka address; give it with "
            "-b HOST:PORT."
        )
    found = ",".join(map(str, addresses))
    with no_broker(found, "-b"), LogClient(found, _LOOKUP_SETTINGS) as client:
        client.cluster.nodes()
        _check_same(client.cluster.cluster_id, found, expected, http)
    return found


def _kafka_addresses(nodes: list[Node], reached: Address) -> list[Address]:
    stated = [one.addresses["kafka"] for one in nodes if one.addresses.get("kafka")]
    return [reachable(read_addresses(one)[0], reached) for one in stated]


def _stated(address: Address | None, bootstrap: str) -> str:
    if address is None:
        raise InvalidRequest(
            f"The broker at {bootstrap} does not report its HTTP address, which this command "
            "uses; give it with --http HOST:PORT."
        )
    return str(address)


def _check_same(kafka_id: str, bootstrap: str, http_id: str, http: str) -> None:
    if kafka_id != http_id:
        raise InvalidRequest(
            f"{bootstrap} (Kafka) belongs to cluster {kafka_id or 'unknown'}, {bare(http)} (HTTP) "
            f"to cluster {http_id or 'unknown'}. Nothing was done; give only one of the two, and "
            "the other is found."
        )
