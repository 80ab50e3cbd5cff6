"""The broker that a command talks to, and what several commands ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from goqueue.cli.target import kafka_address, no_broker
from goqueue.client import LogClient
from goqueue.model.errors import GroupNotEmpty, UnknownGroup, UnknownPartition
from goqueue.model.names import TopicPartition


@contextmanager
def connect(ctx: typer.Context) -> Iterator[LogClient]:
    """A client of the broker that was named; a missing broker is answered with what to do."""
    bootstrap = kafka_address(ctx)
    with no_broker(bootstrap, "-b"), LogClient(bootstrap) as client:
        yield client


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
