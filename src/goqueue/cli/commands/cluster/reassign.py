"""`goqueue cluster reassign`: move the replicas of partitions to other nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from goqueue.cli.commands.cluster.rows import change_row, fail_if_refused, shower
from goqueue.cli.connecting import announce, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, print_rows, progress, show_size
from goqueue.client.http import Change, Client, MoveResult, MovingPartition
from goqueue.config.kinds import INT64_MAX, SIZE, Number
from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition

POLL_SECONDS = 0.3
MOVES_PER_REQUEST = 1000

_RATE = Number(SIZE, at_least=1, at_most=INT64_MAX)
_NO_LIMIT = "none"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The requested reassignment, as given on the command line."""

    topic: str | None
    partitions: Sequence[int]
    replicas: str | None
    away_from: int | None
    throttle: str | None
    is_all: bool


def reassign(
    ctx: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(help="Topic to move; omit it with --all, or with --away-from to move all."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated."),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas",
            "-r",
            metavar="1,2,3",
            help="Ids of the new replicas; the first is the preferred leader.",
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="With --replicas: all topics, such as after a restore."),
    ] = False,
    away_from: Annotated[
        int | None,
        typer.Option(metavar="NODE", min=0, help="Move all replicas away from this node."),
    ] = None,
    throttle: Annotated[
        str | None,
        typer.Option(
            metavar="50MB",
            help="Bytes per second that each node sends to new replicas, or none for no limit. "
            "Without --replicas and --away-from it changes the limit of running reassignments.",
        ),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Only show running reassignments.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel running reassignments.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be moved.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once, without waiting for completion.")
    ] = False,
) -> None:
    """Move replicas of partitions to other nodes, and show the progress.

    After Ctrl-C the cluster continues the reassignment; --status shows it, --cancel cancels it.
    """
    form = current_call(ctx).output
    wanted = _Wanted(topic, partition or (), replicas, away_from, throttle, every)
    with connect_http(ctx) as client:
        if status:
            _print_moving(client.cluster.reassignments(topic=topic), form)
        elif cancel:
            announce(ctx, client)
            _cancel(client, wanted, form)
        elif throttle is not None and replicas is None and away_from is None:
            _throttle(client, wanted, form)
        else:
            if not dry_run:
                announce(ctx, client)
            _move(client, wanted, form, is_dry=dry_run, is_waiting=not (dry_run or detach))


def _move(
    client: Client, wanted: _Wanted, form: OutputForm, *, is_dry: bool, is_waiting: bool
) -> None:
    started = _start(client, wanted, is_dry=is_dry)
    if not started and form is OutputForm.TABLE:
        print("There is nothing to move.")
    if is_waiting:
        _wait(client, started)
    word = "planned" if is_dry else "moved" if is_waiting else "started"
    print_rows([_move_row(one, word, form) for one in started], form)
    fail_if_refused(started)


def _start(client: Client, wanted: _Wanted, *, is_dry: bool) -> list[MoveResult]:
    if (wanted.replicas is None) == (wanted.away_from is None):
        raise InvalidRequest(
            "Give the target nodes with --replicas 1,2,3, or use --away-from NODE."
        )
    rate = None if wanted.throttle is None else _read_rate(wanted.throttle)
    if wanted.away_from is not None:
        if wanted.partitions or wanted.is_all:
            raise InvalidRequest("--away-from moves all partitions; remove --partition and --all.")
        return client.cluster.move_away(
            wanted.away_from, topic=wanted.topic, throttle_bytes_per_second=rate, dry_run=is_dry
        )
    moves = _moves(client, wanted)
    started: list[MoveResult] = []
    for first in range(0, len(moves), MOVES_PER_REQUEST):
        some = dict(moves[first : first + MOVES_PER_REQUEST])
        started += client.cluster.reassign(some, throttle_bytes_per_second=rate, dry_run=is_dry)
    return started


def _moves(client: Client, wanted: _Wanted) -> list[tuple[TopicPartition, list[int]]]:
    """The selected partitions with their new replicas, leaders spread evenly."""
    nodes = _read_nodes(wanted.replicas or "")
    if wanted.partitions:
        topic = _one_topic(wanted)
        return [(TopicPartition(topic, number), nodes) for number in wanted.partitions]
    selected = [
        TopicPartition(topic, number)
        for topic, partitions in _topics(client, wanted)
        for number in range(partitions)
    ]
    return [(one, _turned(nodes, place)) for place, one in enumerate(selected)]


def _topics(client: Client, wanted: _Wanted) -> list[tuple[str, int]]:
    """The selected topics with their numbers of partitions."""
    if wanted.is_all and wanted.topic is None:
        return [(one.name, one.partitions) for one in client.topics.list_all()]
    topic = _one_topic(wanted)
    return [(topic, client.topics.describe(topic).partitions)]


def _one_topic(wanted: _Wanted) -> str:
    if wanted.topic is None or wanted.is_all:
        raise InvalidRequest("Give either the topic to move, or --all.")
    return wanted.topic


def _read_nodes(text: str) -> list[int]:
    words = [one.strip() for one in text.split(",")]
    if not all(one.isdecimal() for one in words):
        raise InvalidRequest(f"{text!r} is not a list of nodes; give their ids, such as 1,2,3.")
    return [int(one) for one in words]


def _read_rate(text: str) -> int | None:
    if text.strip().lower() == _NO_LIMIT:
        return None
    try:
        return _RATE.read(text.removesuffix("/s"))
    except ValueError as error:
        raise InvalidRequest(f"--throttle: {error}; or write {_NO_LIMIT}.") from None


def _turned(nodes: list[int], by: int) -> list[int]:
    """The same nodes, rotated by `by`, so that the leaders of a topic are spread evenly."""
    first = by % len(nodes)
    return nodes[first:] + nodes[:first]


def _wait(client: Client, started: Sequence[MoveResult]) -> None:
    """Show the progress until all are done; after Ctrl-C the cluster continues by itself."""
    wanted = {(one.topic, one.partition) for one in started if not one.problem}
    try:
        with progress(max(1, 100 * len(wanted))) as tick:
            while True:
                moving = [
                    one
                    for one in client.cluster.reassignments()
                    if (one.topic, one.partition) in wanted
                ]
                done = len(wanted) - len(moving)
                tick(round(100 * (done + sum(one.progress for one in moving))))
                if not moving:
                    return
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        return


# Running reassignments


def _cancel(client: Client, wanted: _Wanted, form: OutputForm) -> None:
    changes: list[Change] = []
    for number in _numbers(wanted):
        changes += client.cluster.cancel_reassignments(topic=wanted.topic, partition=number)
    _print_changes(changes, "cancelled", form)


def _throttle(client: Client, wanted: _Wanted, form: OutputForm) -> None:
    rate = _read_rate(wanted.throttle or _NO_LIMIT)
    changes: list[Change] = []
    for number in _numbers(wanted):
        changes += client.cluster.throttle_reassignments(rate, topic=wanted.topic, partition=number)
    word = "without limit" if rate is None else f"at most {show_size(rate)}/s"
    _print_changes(changes, word, form)


def _numbers(wanted: _Wanted) -> Sequence[int | None]:
    """The selected partitions; None for all."""
    if wanted.partitions and wanted.topic is None:
        raise InvalidRequest("Give the topic of the partition too.")
    return wanted.partitions or [None]


# Output


def _print_changes(changes: Sequence[Change], word: str, form: OutputForm) -> None:
    if not changes and form is OutputForm.TABLE:
        print("No reassignment is running.")
    print_rows([change_row(one, word) for one in changes], form)
    fail_if_refused(changes)


def _print_moving(moves: Sequence[MovingPartition], form: OutputForm) -> None:
    if not moves and form is OutputForm.TABLE:
        print("No reassignment is running.")
    is_table = form is OutputForm.TABLE
    print_rows([_shown(one) if is_table else _told(one) for one in moves], form)


def _told(one: MovingPartition) -> dict[str, object]:
    """A row for programs, with plain numbers."""
    return {
        "topic": one.topic,
        "partition": one.partition,
        "from": one.replicas,
        "to": one.target,
        "in_sync": one.in_sync,
        "progress": one.progress,
        "bytes_left": one.bytes_left,
        "bytes_per_second": one.bytes_per_second,
        "throttle_bytes_per_second": one.throttle_bytes_per_second,
        "remaining_ms": one.remaining_ms,
    }


def _shown(one: MovingPartition) -> dict[str, object]:
    """A row for people."""
    show = shower(OutputForm.TABLE)
    throttle = one.throttle_bytes_per_second
    return {
        "topic": one.topic,
        "partition": one.partition,
        "from": show(one.replicas),
        "to": show(one.target),
        "in_sync": show(one.in_sync),
        "progress": f"{one.progress:.0%}",
        "left": show_size(one.bytes_left),
        "rate": f"{show_size(one.bytes_per_second)}/s",
        "throttle": None if throttle is None else f"{show_size(throttle)}/s",
        "remaining": None if one.remaining_ms is None else _show_time(one.remaining_ms),
    }


def _show_time(count_ms: int) -> str:
    """An estimated duration; long ones are rounded, because they are not exact."""
    seconds = -(-count_ms // 1000)
    if seconds < 120:
        return f"{seconds} s"
    minutes = -(-seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{-(-minutes // 60)} h"


def _move_row(one: MoveResult, word: str, form: OutputForm) -> dict[str, object]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "replicas": shower(form)(one.replicas),
        "outcome": one.problem.detail if one.problem else word,
    }
