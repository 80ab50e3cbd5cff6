"""`goqueue cluster`: nodes, health, where partitions are kept, moving them, draining nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from goqueue.cli.context import current_call
from goqueue.cli.http import connect_http
from goqueue.cli.output import OutputForm, print_item, print_rows
from goqueue.cli.progress import progress
from goqueue.client.http import (
    Change,
    Client,
    Cluster,
    Drain,
    MoveResult,
    MovingPartition,
    Node,
    PartitionState,
    PlacedPartition,
)
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.names import TopicPartition

POLL_SECONDS = 0.3
STUCK_SECONDS = 10.0  # a drain that gets nowhere for so long waits for somebody else
STUCK_SHOWN = 3
EXIT_UNHEALTHY = 1

app = typer.Typer(no_args_is_help=True, help="Look at the cluster, move partitions, drain nodes.")

NodeId = Annotated[int, typer.Argument(min=0, help="Id of the node.")]
NoWait = Annotated[bool, typer.Option("--detach", help="Do not wait until it is done.")]


@app.command()
def info(ctx: typer.Context) -> None:
    """Show the cluster at a glance."""
    with connect_http(ctx) as client:
        found = client.cluster.info()
    print_item(_info_row(found), current_call(ctx).output)


@app.command()
def nodes(ctx: typer.Context) -> None:
    """List the nodes: their addresses, and what they lead and keep."""
    with connect_http(ctx) as client:
        found = client.cluster.nodes()
    print_rows([_node_row(one) for one in found], current_call(ctx).output)


@app.command()
def health(ctx: typer.Context) -> None:
    """Tell what is wrong with the cluster; the exit code is 0 only if nothing is."""
    with connect_http(ctx) as client:
        found = client.cluster.health()
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(f"The cluster is {found.status}." if found.status != "ok" else "The cluster is well.")
        for problem in found.problems:
            print(f"  {problem}")
    else:
        print_item({"status": found.status, "problems": found.problems}, form)
    if found.status != "ok":
        raise typer.Exit(EXIT_UNHEALTHY)


@app.command()
def partitions(
    ctx: typer.Context,
    topic: Annotated[str | None, typer.Argument(help="Only this topic.")] = None,
    node: Annotated[int | None, typer.Option(min=0, help="Only what this node keeps.")] = None,
    leaderless: Annotated[
        bool, typer.Option("--leaderless", help="Only those that nobody can lead.")
    ] = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only those with copies not in sync.")
    ] = False,
    moving: Annotated[bool, typer.Option("--moving", help="Only those that are moving.")] = False,
) -> None:
    """List partitions: who leads them, who keeps them, who is in sync."""
    if leaderless + under_replicated + moving > 1:
        raise InvalidRequest("Choose one of --leaderless, --under-replicated and --moving.")
    state: PartitionState | None = None
    if leaderless:
        state = "leaderless"
    elif under_replicated:
        state = "under_replicated"
    elif moving:
        state = "moving"
    with connect_http(ctx) as client:
        found = client.cluster.partitions(topic=topic, node=node, state=state)
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print("No partition is like that.")
    print_rows([_partition_row(one, form) for one in found], form)


@app.command()
def elect(
    ctx: typer.Context,
    topic: Annotated[str | None, typer.Argument(help="Only this topic.")] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Where no copy in sync is left, let another one lead: what only the others had "
            "is lost.",
        ),
    ] = False,
) -> None:
    """Have the first replica of each partition lead again."""
    with connect_http(ctx) as client:
        changes = client.cluster.elect(topic=topic, partitions=partition, unclean=unclean)
    form = current_call(ctx).output
    if not changes and form is OutputForm.TABLE:
        print("Every partition is led as it should be.")
    print_rows([_change_row(one, "elected") for one in changes], form)
    _fail_if_refused(changes)


@app.command()
def reassign(
    ctx: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(help="Topic to move; all with --away-from.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated."),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option("--replicas", "-r", metavar="1,2,3", help="Nodes; the first is to lead."),
    ] = None,
    away_from: Annotated[
        int | None, typer.Option(metavar="NODE", min=0, help="Leave nothing on this node.")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Only show what is moving.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Give up what is moving.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would move.")] = False,
    detach: NoWait = False,
) -> None:
    """Move the copies of partitions to other nodes, and show how far they are.

    Ctrl-C leaves the move to the cluster; --status shows it again, --cancel gives it up.
    """
    form = current_call(ctx).output
    with connect_http(ctx) as client:
        if status:
            _print_moving(client.cluster.reassignments(topic=topic), form)
            return
        if cancel:
            _cancel(client, topic, partition, form)
            return
        started = _start(client, topic, partition, replicas, away_from, dry_run=dry_run)
        if not started and form is OutputForm.TABLE:
            print("There is nothing to move.")
        if not dry_run and not detach:
            _wait_for_moves(client, started)
    word = "planned" if dry_run else "started" if detach else "moved"
    print_rows([_move_row(one, word, form) for one in started], form)
    _fail_if_refused(started)


@app.command()
def drain(ctx: typer.Context, node: NodeId, detach: NoWait = False) -> None:
    """Have other nodes lead what a node leads, so that it can be stopped unnoticed."""
    with connect_http(ctx) as client:
        found = client.cluster.drain(node)
        if not detach:
            found = _wait_for_drain(client, found)
    form = current_call(ctx).output
    if form is not OutputForm.TABLE:
        print_item(_drain_row(found), form)
    elif found.leaders:
        print(f"Node {node} is draining; it still leads {found.leaders:,}, {_stuck(found)}.")
    else:
        print(f"Node {node} leads nothing and can be stopped; `undrain` lets it lead again.")


@app.command()
def undrain(ctx: typer.Context, node: NodeId) -> None:
    """Let a node lead again."""
    with connect_http(ctx) as client:
        found = client.cluster.undrain(node)
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(f"Node {node} may lead again; partitions come back to it by and by.")
    else:
        print_item(_drain_row(found), form)


@app.command()
def unregister(ctx: typer.Context, node: NodeId) -> None:
    """Forget a node that has stopped for good and keeps nothing."""
    with connect_http(ctx) as client:
        client.cluster.unregister(node)
    if current_call(ctx).output is OutputForm.TABLE:
        print(f"Node {node} no longer belongs to the cluster.")


# Moving


def _start(
    client: Client,
    topic: str | None,
    partition: Sequence[int] | None,
    replicas: str | None,
    away_from: int | None,
    *,
    dry_run: bool,
) -> list[MoveResult]:
    if (replicas is None) == (away_from is None):
        raise InvalidRequest("Say where to with --replicas 1,2,3, or use --away-from NODE.")
    if away_from is not None:
        if partition:
            raise InvalidRequest("--away-from moves all partitions; leave --partition out.")
        return client.cluster.move_away(away_from, topic=topic, dry_run=dry_run)
    if topic is None:
        raise InvalidRequest("Name the topic to move.")
    nodes = _read_nodes(replicas or "")
    numbers = partition or range(client.topics.describe(topic).partitions)
    moves = {
        TopicPartition(topic, number): _turned(nodes, 0 if partition else number)
        for number in numbers
    }
    return client.cluster.reassign(moves, dry_run=dry_run)


def _read_nodes(text: str) -> list[int]:
    words = [one.strip() for one in text.split(",")]
    if not all(one.isdecimal() for one in words):
        raise InvalidRequest(f"{text!r} is no list of nodes; write their ids, such as 1,2,3.")
    return [int(one) for one in words]


def _turned(nodes: list[int], by: int) -> list[int]:
    """The same nodes beginning with another one, so that a topic's leaders are spread."""
    first = by % len(nodes)
    return nodes[first:] + nodes[:first]


def _wait_for_moves(client: Client, started: Sequence[MoveResult]) -> None:
    """Show how far the cluster is; Ctrl-C leaves the rest to it."""
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


def _cancel(
    client: Client, topic: str | None, partition: Sequence[int] | None, form: OutputForm
) -> None:
    if partition and topic is None:
        raise InvalidRequest("Name the topic of the partition too.")
    changes: list[Change] = []
    numbers: Sequence[int | None] = partition or [None]
    for number in numbers:
        changes += client.cluster.cancel_reassignments(topic=topic, partition=number)
    if not changes and form is OutputForm.TABLE:
        print("Nothing is moving.")
    print_rows([_change_row(one, "cancelled") for one in changes], form)
    _fail_if_refused(changes)


def _wait_for_drain(client: Client, found: Drain) -> Drain:
    """Wait until a node leads nothing, or for as long as that makes progress."""
    total = found.leaders
    until = time.monotonic() + STUCK_SECONDS
    try:
        with progress(max(1, total)) as tick:
            while found.leaders and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
                before, found = found.leaders, client.cluster.drain_progress(found.node)
                if found.leaders < before:
                    until = time.monotonic() + STUCK_SECONDS
                tick(total - found.leaders)
    except KeyboardInterrupt:
        pass
    return found


# Showing


def _info_row(found: Cluster) -> dict[str, object]:
    return {
        "cluster": found.cluster_id,
        "controller": found.controller,
        "voters": _listed(found.voters),
        "nodes": found.nodes,
        "nodes_running": found.nodes_running,
        "topics": found.topics,
        "partitions": found.partitions,
        "leaderless": found.leaderless,
        "under_replicated": found.under_replicated,
        "moving": found.moving,
        "answered_by": found.answered_by,
    }


def _node_row(node: Node) -> dict[str, object]:
    return {
        "id": node.id,
        "state": node.state,
        "role": "controller" if node.controller else "voter" if node.voter else "member",
        "leaders": node.leaders,
        "replicas": node.replicas,
        "rack": node.rack or None,
        "kafka": node.addresses.get("kafka"),
        "http": node.addresses.get("http"),
        "internal": node.addresses.get("internal"),
    }


def _partition_row(one: PlacedPartition, form: OutputForm) -> dict[str, object]:
    show = _shower(form)
    return {
        "topic": one.topic,
        "partition": one.partition,
        "leader": one.leader,
        "epoch": one.leader_epoch,
        "replicas": show(one.replicas),
        "in_sync": show(one.in_sync),
        "moving_to": show(one.target) if one.target else None,
    }


def _print_moving(moves: Sequence[MovingPartition], form: OutputForm) -> None:
    if not moves and form is OutputForm.TABLE:
        print("Nothing is moving.")
    show = _shower(form)
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "from": show(one.replicas),
            "to": show(one.target),
            "in_sync": show(one.in_sync),
            "progress": f"{one.progress:.0%}" if form is OutputForm.TABLE else one.progress,
        }
        for one in moves
    ]
    print_rows(rows, form)


def _move_row(one: MoveResult, word: str, form: OutputForm) -> dict[str, object]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "replicas": _shower(form)(one.replicas),
        "outcome": one.problem.detail if one.problem else word,
    }


def _change_row(one: Change, word: str) -> dict[str, object]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "outcome": one.problem.detail if one.problem else word,
    }


def _drain_row(found: Drain) -> dict[str, object]:
    return {
        "node": found.node,
        "draining": found.draining,
        "leaders": found.leaders,
        "stuck": found.stuck,
    }


def _stuck(found: Drain) -> str:
    named = ", ".join(found.stuck[:STUCK_SHOWN])
    return f"among them {named}, because no other copy is in sync"


def _shower(form: OutputForm) -> Callable[[Sequence[int]], object]:
    """People get a short text, programs a list."""
    return _listed if form is OutputForm.TABLE else list


def _listed(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _fail_if_refused(results: Sequence[Change | MoveResult]) -> None:
    failed = sum(bool(one.problem) for one in results)
    if failed:
        raise Refused(f"{failed} of {len(results)} were refused.")


class Refused(GoQueueError):
    """Some of what was asked for was not done; the rows above say why."""

    code = "refused"
