"""The commands of `goqueue bench` and their options."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from goqueue.cli.access import Access
from goqueue.cli.commands.bench import loads
from goqueue.cli.commands.bench.figures import BYTES_MIN, Arrivals, histogram, latency_row
from goqueue.cli.commands.bench.loads import Load
from goqueue.cli.commands.produce import read_producer_settings
from goqueue.cli.connecting import connect, connect_http, kafka_address, kafka_client
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, print_rows, progress
from goqueue.client import LogClient

app = typer.Typer(
    no_args_is_help=True,
    help="Measure a broker; messages that were acknowledged and do not arrive are an error.",
)

BROKER_DEFAULT = -1

Topic: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Topic to use, which stays; by default a new one, deleted at the end."),
]
Count: TypeAlias = Annotated[int, typer.Option("--count", "-n", min=1, help="Messages.")]
Size: TypeAlias = Annotated[int, typer.Option(min=BYTES_MIN, help="Bytes of each message.")]
Partitions: TypeAlias = Annotated[int, typer.Option(min=1, help="Partitions of a new topic.")]
Replicas: TypeAlias = Annotated[
    int, typer.Option(min=-1, help="Replicas of a new topic; -1 is the broker's default.")
]
Acks: TypeAlias = Annotated[
    str, typer.Option(metavar="none|leader|all", help="Replicas that must have a message.")
]
Compression: TypeAlias = Annotated[
    str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="Compression of batches.")
]


@app.command()
def produce(
    ctx: typer.Context,
    topic: Topic = None,
    count: Count = 100_000,
    size: Size = 1_000,
    partitions: Partitions = 6,
    replicas: Replicas = BROKER_DEFAULT,
    acks: Acks = "all",
    compression: Compression = "none",
) -> None:
    """Write messages over Kafka as fast as they are acknowledged."""
    settings = read_producer_settings(acks=acks, compression=compression)
    with connect(ctx) as client, _topic(client, topic, partitions, replicas) as name:
        with progress(count) as tick:
            row = loads.produce(client, Load(name, size, count), settings, tick)
        print_rows([row], current_call(ctx).output)


@app.command()
def consume(
    ctx: typer.Context,
    topic: Topic = None,
    count: Count = 100_000,
    size: Size = 1_000,
    partitions: Partitions = 6,
    replicas: Replicas = BROKER_DEFAULT,
) -> None:
    """Read a topic over Kafka from beginning to end; a new topic is filled first, and checked."""
    settings = read_producer_settings(acks="all", compression="none")
    with connect(ctx) as client, _topic(client, topic, partitions, replicas) as name:
        rows: list[loads.Row] = []
        arrivals = None
        if topic is None:
            arrivals = Arrivals(count)
            with progress(count) as tick:
                rows.append(loads.produce(client, Load(name, size, count), settings, tick))
        with progress(count) as tick:
            rows.append(loads.consume(client, name, arrivals, tick))
        print_rows(rows, current_call(ctx).output)


@app.command()
def queue(
    ctx: typer.Context,
    count: Count = 10_000,
    size: Size = 1_000,
    partitions: Partitions = 6,
    replicas: Replicas = BROKER_DEFAULT,
    consumers: Annotated[int, typer.Option(min=1, max=64, help="Consumers at a time.")] = 4,
) -> None:
    """Publish messages over HTTP, then receive and acknowledge each of them."""
    with (
        connect(ctx) as client,
        connect_http(ctx) as api,
        _topic(client, None, partitions, replicas) as name,
    ):
        group = f"{name}-workers"
        try:
            with progress(count) as tick:
                rows = loads.queue(api, Load(name, size, count), group, consumers, tick)
        finally:
            api.groups.delete(group)
        print_rows(rows, current_call(ctx).output)


@app.command()
def latency(
    ctx: typer.Context,
    rate: Annotated[float, typer.Option(min=0.1, help="Messages a second.")] = 100.0,
    seconds: Annotated[float, typer.Option(min=0.1, help="For how long.")] = 10.0,
    size: Size = 1_000,
    partitions: Partitions = 1,
    replicas: Replicas = BROKER_DEFAULT,
    acks: Acks = "all",
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the distribution until messages are received.")
    ] = False,
) -> None:
    """Send messages at a fixed rate, and measure until they are acknowledged and received.

    The rate does not follow the broker: a message that waits because earlier ones are late counts
    from when it was due.
    """
    settings = read_producer_settings(acks=acks, compression="none")
    call = current_call(ctx)
    count = max(int(rate * seconds), 1)
    with connect(ctx) as client, _topic(client, None, partitions, replicas) as name:
        bootstrap, access = kafka_address(ctx), call.access

        def reading() -> LogClient:
            return _reading(bootstrap, access)

        with progress(count) as tick:
            load = Load(name, size, count)
            found = loads.latency(client, load, rate, settings, reading, tick)
    rows = [
        latency_row("acknowledged", found.acknowledged),
        latency_row("received", found.received),
    ]
    print_rows(rows, call.output)
    if plot and call.output is OutputForm.TABLE:
        typer.echo("\nuntil received")
        for line in histogram(found.received):
            typer.echo(line)


def _reading(bootstrap: str, access: Access) -> LogClient:
    """Connections of its own, for another thread."""
    return kafka_client(bootstrap, access)


@contextmanager
def _topic(client: LogClient, given: str | None, partitions: int, replicas: int) -> Iterator[str]:
    """The given topic, or a new one that is deleted at the end."""
    if given is not None:
        yield given
        return
    name = f"bench-{uuid.uuid4().hex[:12]}"
    client.topics.create(name, partition_count=partitions, replication_factor=replicas)
    try:
        yield name
    finally:
        client.topics.delete(name)
