"""`goqueue group`: groups of all kinds, and the offsets of stream groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from goqueue.cli.commands.queue.groups import delete_queue_group, show_queue_group
from goqueue.cli.connecting import announce, confirm, connect, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.group_rows import member_rows, print_members
from goqueue.cli.lookups import find_group, partitions_of, refuse_members, require_kind
from goqueue.cli.moments import now_ms, read_duration_ms, read_time_ms
from goqueue.cli.output import OutputForm, print_item, print_rows
from goqueue.client import LogClient, PartitionLag, Position
from goqueue.client.groups import EMPTY, SHARE, GroupSummary
from goqueue.client.http import GroupPartitionLag, QueueGroup
from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition

app = typer.Typer(
    no_args_is_help=True,
    help="Inspect groups of all kinds, and reset the offsets of stream groups.",
)

Name = Annotated[str, typer.Argument(help="Id of the group.")]


@app.command("list")
def list_groups(ctx: typer.Context) -> None:
    """List the groups: stream groups commit offsets, queue groups acknowledge messages."""
    with connect(ctx) as client:
        listed = client.groups.list_all()
    with connect_http(ctx) as api:
        queues = {one.name for one in api.groups.list_all(kind="queue")}
    # The Kafka protocol lists queue groups too, as share groups.
    members = {each.name: each for each in listed if each.kind == SHARE}
    rows = [_stream_row(each) for each in listed if each.name not in queues and each.kind != SHARE]
    rows += [_queue_row(name, members.get(name)) for name in queues]
    call = current_call(ctx)
    if not rows and call.output is OutputForm.TABLE:
        print("There are no groups yet; one is created when a consumer joins, commits or receives.")
    print_rows(sorted(rows, key=lambda row: str(row["group"])), call.output)


@app.command()
def describe(ctx: typer.Context, group: Name) -> None:
    """Show the members of a stream group, or the topics and settings of a queue group."""
    form = current_call(ctx).output
    with connect_http(ctx) as api:
        queue = find_group(api, group)
        if isinstance(queue, QueueGroup):
            show_queue_group(ctx, api, queue)
            return
    with connect(ctx) as client:
        found = client.groups.describe(group)
    rows = member_rows(found)
    if form is not OutputForm.TABLE:
        tree = {
            "group": found.name,
            "kind": "stream",
            "protocol": found.kind,
            "state": found.state,
        }
        print_item({**tree, "assignor": found.assignor or None, "members": rows}, form)
        return
    assignor = f", assignor {found.assignor}" if found.assignor else ""
    noun = "member" if len(rows) == 1 else "members"
    print(f"{found.name}: {found.state.lower()}, {found.kind}{assignor}, {len(rows)} {noun}")
    if rows:
        print()
        print_members(rows)


@app.command()
def lag(ctx: typer.Context, group: Name) -> None:
    """Show how many records or messages a group has not yet read or settled."""
    with connect_http(ctx) as api:
        found = find_group(api, group)
        is_queue = isinstance(found, QueueGroup)
        rows = (
            [_queue_lag_row(each) for each in api.groups.lag(group).partitions] if is_queue else []
        )
    if not is_queue:
        with connect(ctx) as client:
            rows = [_lag_row(each) for each in client.groups.lag(group)]
    total = sum(int(str(row["lag"] or 0)) for row in rows)
    form = current_call(ctx).output
    if form is not OutputForm.TABLE:
        kind = "queue" if is_queue else "stream"
        print_item({"group": group, "kind": kind, "total_lag": total, "partitions": rows}, form)
        return
    if not rows:
        verb = "received" if is_queue else "committed"
        print(f"Group {group} has {verb} nothing yet.")
        return
    print_rows(rows, form)
    print(f"\nTotal lag: {total:,}")


@app.command()
def offsets(ctx: typer.Context, group: Name) -> None:
    """Show the committed offsets of a stream group."""
    with connect_http(ctx) as api:
        require_kind(api, group, "stream", instead="use `goqueue queue stats` to see its progress")
    with connect(ctx) as client:
        client.groups.describe(group)
        committed = client.groups.committed(group)
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": each.offset,
            "metadata": each.metadata or None,
        }
        for partition, each in sorted(committed.items())
    ]
    call = current_call(ctx)
    if not rows and call.output is OutputForm.TABLE:
        print(f"Group {group} has committed nothing yet.")
    print_rows(rows, call.output)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a reset: a position, or a shift of the current offsets."""

    position: Position | None = None
    step: int = 0


@app.command("reset")
@app.command("reset-offsets", hidden=True)
def reset(
    ctx: typer.Context,
    group: Name,
    topic: Annotated[str, typer.Option(help="Topic whose offsets are reset.")],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first retained record.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end, after the last record.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first record at or after this time, RFC 3339 or milliseconds since 1970.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="2h", help="To the first record of the last 2h, 7d, ...")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Forward by this many records, or back if negative.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
) -> None:
    """Reset the offsets of a stream group in a topic; the group must have no members."""
    target = read_target(
        {
            "--to-earliest": Position.earliest() if to_earliest else None,
            "--to-latest": Position.latest() if to_latest else None,
            "--to-offset": None if to_offset is None else Position.at_offset(to_offset),
            "--to-timestamp": None if to_timestamp is None else _at_time(to_timestamp),
            "--by-duration": None if by_duration is None else _ago(by_duration),
        },
        shift_by,
    )
    with connect_http(ctx) as api:
        instead = f"use `goqueue queue rewind {topic} --group {group}`"
        require_kind(api, group, "stream", instead=instead)
    with connect(ctx) as client:
        refuse_members(client, group)
        partitions = partitions_of(client, topic, only=partition)
        before = {
            each: found.offset for each, found in client.groups.committed(group, partitions).items()
        }
        after = _targets(client, partitions, before, target)
        if not dry_run:
            announce(ctx, client)
            client.groups.commit(group, after)
    form = current_call(ctx).output
    print_rows([_move_row(each, before.get(each), after[each]) for each in partitions], form)
    if form is OutputForm.TABLE:
        print(
            "\nNothing was changed (--dry-run)."
            if dry_run
            else f"\nThe offsets of group {group} are reset."
        )


@app.command()
def delete(
    ctx: typer.Context,
    group: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a stream group without members and its offsets, or a queue group and its state."""
    with connect_http(ctx) as api:
        if isinstance(find_group(api, group), QueueGroup):
            delete_queue_group(ctx, api, group, yes=yes)
            return
    with connect(ctx) as client:
        client.groups.describe(group)
        confirm(ctx, client, f"Delete group {group} and its offsets", yes=yes)
        client.groups.delete(group)
    print(f"Group {group} is deleted.")


def read_target(positions: Mapping[str, Position | None], shift_by: int | None) -> Target:
    """The single target given by the options."""
    given = [name for name, position in positions.items() if position is not None]
    if shift_by is not None:
        given.append("--shift-by")
    if len(given) != 1:
        options = ", ".join([*positions, "--shift-by"])
        found = f"; {' and '.join(given)} were given" if given else ""
        raise InvalidRequest(f"Give exactly one of {options}{found}.")
    return Target(positions.get(given[0]), shift_by or 0)


def _targets(
    client: LogClient,
    partitions: list[TopicPartition],
    before: Mapping[TopicPartition, int],
    target: Target,
) -> dict[TopicPartition, int]:
    """The new offsets, limited to the range of each partition."""
    ranges = client.offsets.ranges(partitions)
    if target.position is not None:
        wanted = client.offsets.resolve(partitions, target.position)
    else:
        missing = [str(each) for each in partitions if each not in before]
        if missing:
            raise InvalidRequest(
                f"The group has committed nothing for {', '.join(missing)}; use --to-earliest or "
                "--to-latest first."
            )
        wanted = {each: before[each] + target.step for each in partitions}
    return {
        each: min(max(wanted[each], ranges[each].start), ranges[each].end) for each in partitions
    }


def _at_time(text: str) -> Position:
    return Position.at_time(read_time_ms(text))


def _ago(text: str) -> Position:
    return Position.ago(read_duration_ms(text), now_ms=now_ms())


def _stream_row(each: GroupSummary) -> dict[str, object]:
    return {
        "group": each.name,
        "kind": "stream",
        "protocol": each.kind or None,
        "state": each.state,
    }


def _queue_row(name: str, found: GroupSummary | None) -> dict[str, object]:
    """Show the protocol and the state only of a queue group with share consumers.

    Other consumers are not members: to Kafka the group is empty, although messages are received.
    """
    has_members = found is not None and found.state != EMPTY
    return {
        "group": name,
        "kind": "queue",
        "protocol": SHARE if has_members else None,
        "state": found.state if found is not None and has_members else None,
    }


def _lag_row(each: PartitionLag) -> dict[str, object]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "committed": each.committed,
        "end": each.end,
        "lag": each.lag,
        "member": each.member.id if each.member else None,
        "host": each.member.host if each.member else None,
    }


def _queue_lag_row(each: GroupPartitionLag) -> dict[str, object]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": each.offset,
        "end": each.end_offset,
        "lag": each.lag,
        "member": None,
        "host": None,
    }


def _move_row(partition: TopicPartition, before: int | None, after: int) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "before": before,
        "after": after,
        "change": None if before is None else f"{after - before:+d}",
    }
