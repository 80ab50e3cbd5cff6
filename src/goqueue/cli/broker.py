"""The connection of a command to its broker, and requests that several commands make."""

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
    """Connect to the given broker; if that fails, the error says what the user can do."""
    bootstrap = kafka_address(ctx)
    with no_broker(bootstrap, "-b"), LogClient(bootstrap) as client:
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
