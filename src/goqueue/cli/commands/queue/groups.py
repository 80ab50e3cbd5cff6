"""`goqueue queue list`, `describe`, `configure` and `delete`: queue groups and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from goqueue.cli.connecting import confirm, connect, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.group_rows import joined, member_rows, print_members
from goqueue.cli.lookups import connect_queue, find_group
from goqueue.cli.moments import read_duration_ms
from goqueue.cli.output import OutputForm, print_item, print_rows
from goqueue.client.http import Client, QueueGroup, QueueStats
from goqueue.model.errors import InvalidRequest, UnknownGroup

GroupName = Annotated[str, typer.Argument(help="Name of the queue group.")]
STATES = ("ready", "in_flight", "retrying", "parked", "dead_lettering")


def add_group_commands(app: typer.Typer) -> None:
    app.command("list")(list_groups)
    app.command()(describe)
    app.command()(configure)
    app.command()(delete)


def list_groups(
    ctx: typer.Context,
    prefix: Annotated[str, typer.Option(help="Only names with this prefix.")] = "",
) -> None:
    """List the queue groups, their topics, and the number of messages not settled yet."""
    with connect_http(ctx) as client:
        names = [one.name for one in client.groups.list_all(kind="queue", prefix=prefix)]
        rows = [_list_row(client, name) for name in names]
    form = current_call(ctx).output
    if not rows and form is OutputForm.TABLE:
        print("There are no queue groups yet; the first `queue receive` creates one.")
    if form is OutputForm.TABLE:
        rows = [{**row, "topics": joined(row["topics"])} for row in rows]
    print_rows(rows, form)


def describe(ctx: typer.Context, group: GroupName) -> None:
    """Show the settings of a queue group, and its message counts in each topic."""
    with connect_queue(ctx, group, instead=f"use `goqueue group describe {group}`") as client:
        show_queue_group(ctx, client, _get(client, group))


def configure(
    ctx: typer.Context,
    group: GroupName,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Setting to change; may be repeated."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Setting to reset to its default; may be repeated."),
    ] = None,
) -> None:
    """Create a queue group, or change the given settings of one and keep the others."""
    changes = read_group_settings(config or [])
    instead = "a queue group needs another name"
    with connect_queue(ctx, group, instead=instead) as client:
        if find_group(client, group) is None:
            if unset:
                raise UnknownGroup(group)
            found = client.groups.put_queue(group, changes)
        elif changes or unset:
            removed = dict.fromkeys(map(_setting_name, unset or []))
            found = client.groups.configure_queue(group, {**changes, **removed})
        else:
            found = _get(client, group)
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print_rows(_setting_rows(found), form)
    else:
        print_item(_tree(found), form)


def delete(
    ctx: typer.Context,
    group: GroupName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a queue group and all its delivery state; the messages stay in their topics."""
    with connect_queue(ctx, group, instead=f"use `goqueue group delete {group}`") as client:
        delete_queue_group(ctx, client, group, yes=yes)


def delete_queue_group(ctx: typer.Context, client: Client, group: str, *, yes: bool) -> None:
    left = client.groups.lag(group).lag
    noun = "message" if left == 1 else "messages"
    question = f"Delete queue group {group}, which has {left:,} unsettled {noun},"
    confirm(ctx, client, question, yes=yes)
    client.groups.delete(group)
    print(f"Group {group} is deleted.")


def show_queue_group(ctx: typer.Context, client: Client, found: QueueGroup) -> None:
    """Show the messages of a queue group, its settings, and the share consumers in it."""
    form = current_call(ctx).output
    stats = {topic: client.queue(topic, group=found.name).stats() for topic in found.topics}
    rows = [{"topic": topic, **counts(one)} for topic, one in stats.items()]
    with connect(ctx) as log:
        share = log.groups.describe_share(found.name)
    members = member_rows(share)
    if form is not OutputForm.TABLE:
        state = share.state if members else None
        print_item({**_tree(found), "state": state, "members": members, "topics": rows}, form)
        return
    topics = "1 topic" if len(rows) == 1 else f"{len(rows)} topics"
    noun = "share consumer" if len(members) == 1 else "share consumers"
    joining = f", {share.state.lower()}, {len(members)} {noun}" if members else ""
    print(f"{found.name}: queue group, {topics}{joining}\n")
    if members:
        print_members(members)
        print()
    if rows:
        print_rows(rows, form)
        print()
    print_rows(_setting_rows(found), form)


def counts(found: QueueStats) -> dict[str, int]:
    """The number of messages in each state."""
    return {name: getattr(found, name) for name in STATES}


def read_group_settings(assignments: list[str]) -> dict[str, object]:
    """Settings of a queue group, with durations as milliseconds."""
    settings: dict[str, object] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{assignment!r} is not a setting; write NAME=VALUE.")
        settings[_setting_name(name)] = _value(name.strip(), text.strip())
    return settings


def _setting_name(text: str) -> str:
    return text.strip().replace(".", "_")


def _value(name: str, text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "_ms" in name or ".ms" in name:
        return read_duration_ms(text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _get(client: Client, group: str) -> QueueGroup:
    found = find_group(client, group)
    if not isinstance(found, QueueGroup):
        raise UnknownGroup(group)
    return found


def _list_row(client: Client, name: str) -> dict[str, object]:
    """The topics of a group and its unsettled messages; empty if it was deleted meanwhile."""
    found = find_group(client, name)
    if not isinstance(found, QueueGroup):
        return {"group": name, "topics": [], "to_do": None}
    return {"group": name, "topics": list(found.topics), "to_do": client.groups.lag(name).lag}


def _tree(found: QueueGroup) -> dict[str, object]:
    return {"group": found.name, "kind": "queue", "settings": _settings(found)}


def _settings(found: QueueGroup) -> Mapping[str, object]:
    import msgspec

    settings: Mapping[str, object] = msgspec.to_builtins(found.settings)
    return settings


def _setting_rows(found: QueueGroup) -> list[dict[str, object]]:
    return [
        {"setting": name, "value": None if value == "" else value}
        for name, value in _settings(found).items()
    ]
