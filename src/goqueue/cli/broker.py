"""The broker that a command talks to, and what several commands ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from goqueue.cli.context import current_call
from goqueue.client import LogClient, Unreachable
from goqueue.model.errors import GroupNotEmpty, UnknownGroup, UnknownPartition
from goqueue.model.names import TopicPartition


@contextmanager
def connect(ctx: typer.Context) -> Iterator[LogClient]:
    """A client of the broker that was named; a missing broker is answered with what to do."""
    bootstrap = current_call(ctx).bootstrap
    try:
        with LogClient(bootstrap) as client:
            yield client
    except Unreachable as error:
        raise Unreachable(
            f"No broker answers at {bootstrap}; start one with `goqueue serve` (or `make serve`), "
            "or name another with -b HOST:PORT."
        ) from error


def partitions_of(client: LogClient, topic: str, *, only: int | None) -> list[TopicPartition]:
    """All partitions of a topic, or the one that was asked for."""
    partitions = client.topics.view(topic).names
    if only is None:
        return partitions
    wanted = TopicPartition(topic, only)
    if wanted not in partitions:
        raise UnknownPartition(wanted)
    return [wanted]


def refuse_members(client: LogClient, group: str) -> None:
    """Let only a group without members pass.

    A running member goes on from its own position, and would commit over anybody else's.
    """
    try:
        members = client.groups.describe(group).members
    except UnknownGroup:
        return  # the first commit creates it
    if members:
        raise GroupNotEmpty(group)
