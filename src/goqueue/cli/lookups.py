"""The kind of a group: all kinds share one namespace, and each command handles one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import typer

from goqueue.cli.http import connect_http
from goqueue.client.http import Client, QueueGroup, StreamGroup
from goqueue.model.errors import InvalidRequest, UnknownGroup

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
