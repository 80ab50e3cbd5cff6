"""`goqueue topic`: create, inspect, change and delete topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from goqueue.cli.connecting import confirm, connect
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, print_item, print_rows, show_size
from goqueue.client import ConfigSource, PartitionDescription, TopicDescription
from goqueue.client.topics import BROKER_DEFAULT
from goqueue.config.kinds import DURATION, INT64_MAX, SIZE, Number, Unit
from goqueue.model.errors import InvalidRequest, TopicExists

app = typer.Typer(no_args_is_help=True, help="Create, inspect, change and delete topics.")

Name = Annotated[str, typer.Argument(help="Name of the topic.")]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="A setting, such as retention.ms=7d or segment_bytes=64MiB; may be repeated.",
    ),
]


@app.command("list")
def list_topics(
    ctx: typer.Context,
    internal: Annotated[
        bool, typer.Option("--internal", help="List internal topics of the broker too.")
    ] = False,
) -> None:
    """List the topics."""
    with connect(ctx) as client:
        topics = client.topics.list_all(has_internal=internal)
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
            "internal": topic.is_internal,
        }
        for topic in topics
    ]
    call = current_call(ctx)
    if not rows and call.output is OutputForm.TABLE:
        print("There are no topics yet; create one with `goqueue topic create NAME`.")
    print_rows(rows, call.output)


@app.command()
def create(
    ctx: typer.Context,
    topic: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="Number of partitions; default that of the broker."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="Replicas of each partition; default that of the broker."),
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[
        bool,
        typer.Option(
            "--if-not-exists", help="Do not fail if the topic exists; leave it unchanged."
        ),
    ] = False,
) -> None:
    """Create a topic."""
    with connect(ctx) as client:
        try:
            client.topics.create(
                topic,
                partition_count=partitions or BROKER_DEFAULT,
                replication_factor=replicas or BROKER_DEFAULT,
                settings=read_settings(config or []),
            )
        except TopicExists:
            if not if_not_exists:
                raise
            print(f"Topic {topic} already exists and is unchanged.")
            return
        count = len(client.topics.view(topic).partitions)
    print(f"Topic {topic} is created, with {_counted(count, 'partition')}.")


@app.command()
def describe(ctx: typer.Context, topic: Name) -> None:
    """Show a topic: partitions with offsets and sizes, and settings with their sources."""
    with connect(ctx) as client:
        found = client.topics.describe(topic)
    form = current_call(ctx).output
    if form is not OutputForm.TABLE:
        print_item(_as_tree(found), form)
        return
    print(_headline(found), end="\n\n")
    print_rows([_partition_row(each, is_for_people=True) for each in found.partitions], form)
    print()
    print_rows(_setting_rows(found), form)


@app.command()
def configure(
    ctx: typer.Context,
    topic: Name,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Setting to reset to its default; may be repeated."),
    ] = None,
) -> None:
    """Change settings of a topic."""
    values: dict[str, str | None] = {**read_settings(config or [])}
    values |= dict.fromkeys(map(setting_name, unset or []))
    if not values:
        raise InvalidRequest("Nothing to change; give --config NAME=VALUE or --unset NAME.")
    with connect(ctx) as client:
        client.topics.configure(topic, values)
    print(f"Topic {topic} is changed: {', '.join(values)}.")


@app.command()
def grow(
    ctx: typer.Context,
    topic: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="New total number of partitions.")
    ],
) -> None:
    """Add partitions to a topic; new records of a key may go to another partition than before."""
    with connect(ctx) as client:
        client.topics.grow(topic, partition_count=partitions)
    print(f"Topic {topic} now has {_counted(partitions, 'partition')}.")


@app.command()
def delete(
    ctx: typer.Context,
    topic: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a topic and all its records."""
    with connect(ctx) as client:
        ranges = client.offsets.ranges(client.topics.view(topic).names).values()
        count = _counted(sum(each.end - each.start for each in ranges), "record")
        confirm(ctx, client, f"Delete topic {topic} and its {count}", yes=yes)
        client.topics.delete(topic)
    print(f"Topic {topic} is deleted.")


def read_settings(assignments: Iterable[str]) -> dict[str, str]:
    """Settings by their name in the broker, with durations and sizes as plain numbers."""
    settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{assignment!r} is not a setting; write NAME=VALUE.")
        settings[setting_name(name)] = _plain(setting_name(name), value.strip())
    return settings


def setting_name(text: str) -> str:
    """A setting may be written with dots or with underscores."""
    return text.strip().replace("_", ".")


def _plain(name: str, value: str) -> str:
    unit: Unit | None = None
    if name.endswith(".ms"):
        unit = DURATION
    elif name.endswith(".bytes"):
        unit = SIZE
    if unit is None:
        return value
    try:
        return str(Number(unit, 0, INT64_MAX, has_limit=False).read(value))
    except ValueError:
        return value  # the broker reports what is wrong with it


def _headline(found: TopicDescription) -> str:
    replicas = max((len(each.replicas) for each in found.partitions), default=0)
    count = sum(each.end_offset - each.start_offset for each in found.partitions)
    sizes = [each.size_bytes for each in found.partitions if each.size_bytes is not None]
    parts = [
        _counted(len(found.partitions), "partition"),
        _counted(replicas, "replica"),
        _counted(count, "record"),
    ]
    if sizes:
        parts.append(show_size(sum(sizes)))
    kind = " (internal)" if found.is_internal else ""
    return f"{found.name}{kind}: {', '.join(parts)}"


def _as_tree(found: TopicDescription) -> dict[str, object]:
    return {
        "topic": found.name,
        "id": str(uuid.UUID(bytes=found.id)),
        "internal": found.is_internal,
        "partitions": [_partition_row(each, is_for_people=False) for each in found.partitions],
        "settings": _setting_rows(found),
    }


def _partition_row(each: PartitionDescription, *, is_for_people: bool) -> dict[str, object]:
    size: object = each.size_bytes
    if is_for_people and each.size_bytes is not None:
        size = show_size(each.size_bytes)
    return {
        "partition": each.index,
        "leader": each.leader,
        "replicas": _ids(each.replicas) if is_for_people else list(each.replicas),
        "in_sync": _ids(each.in_sync) if is_for_people else list(each.in_sync),
        "start": each.start_offset,
        "end": each.end_offset,
        "size" if is_for_people else "size_bytes": size,
    }


def _setting_rows(found: TopicDescription) -> list[Mapping[str, object]]:
    """Sort the settings, those set on the topic itself first."""
    entries = sorted(
        found.settings, key=lambda each: (each.source is not ConfigSource.TOPIC, each.name)
    )
    return [
        {
            "setting": each.name,
            "value": "(secret)" if each.is_sensitive else each.value,
            "source": each.source.value,
        }
        for each in entries
    ]


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
