"""Lookups and checks that several commands make before they act.

All kinds of groups share one namespace, and each command handles one kind, so commands check it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import typer

from goqueue.cli.connecting import connect_http
from goqueue.client import LogClient
from goqueue.client.http import Client, QueueGroup, StreamGroup
from goqueue.model.errors import GroupNotEmpty, InvalidRequest, UnknownGroup, UnknownPartition
from goqueue.model.names import TopicPartition

GroupKind = Literal["stream", "queue"]


def find_group(client: Client, group: str) -> QueueGroup | StreamGroup | None:
    """A group of any kind, or None."""
    try:
        return client.groups.describe(group)
    except UnknownGroup:
        return None


def kind_of(found: QueueGroup | StreamGroup) -> GroupKind:
    return "queue" if isinstance(found, QueueGroup) else "stream"


def require_kind(client: Client, group: str, kind: GroupKind, *, instead: str) -> None:
    """Refuse a group of another kind; `instead` is the advice in the error. A new name passes."""
    found = find_group(client, group)
    if found is not None and kind_of(found) != kind:
        raise InvalidRequest(f"Group {group!r} is a {kind_of(found)} group; {instead}.")


@contextmanager
def connect_queue(ctx: typer.Context, group: str, *, instead: str) -> Iterator[Client]:
    """A client for a command on queue groups, after checking that `group` is of no other kind."""
    with connect_http(ctx) as client:
        require_kind(client, group, "queue", instead=instead)
        yield client


def partitions_of(client: LogClient, topic: str, *, only: int | None) -> list[TopicPartition]:
    """All partitions of a topic, or only the given one."""
    partitions = client.topics.view(topic).names
    if only is None:
        return partitions
    wanted = TopicPartition(topic, only)
    if wanted not in partitions:
        raise UnknownPartition(wanted)
    return [wanted]


def refuse_members(client: LogClient, group: str) -> None:
    """Raise GroupNotEmpty if the group has members.

    A running member continues from its own position and would overwrite offsets that others commit.
    """
    try:
        members = client.groups.describe(group).members
    except UnknownGroup:
        return  # the first commit creates it
    if members:
        raise GroupNotEmpty(group)
