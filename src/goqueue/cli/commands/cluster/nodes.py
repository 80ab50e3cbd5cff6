"""`goqueue cluster`: nodes, health, placement of partitions, draining of nodes.

Reassignment of partitions is in `reassign`, the voters are in `voters`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from goqueue.cli.commands.cluster import reassign, upgrade, voters
from goqueue.cli.commands.cluster.rows import change_row, fail_if_refused, listed, shower
from goqueue.cli.connecting import announce, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, print_item, print_rows, progress
from goqueue.client.http import Client, Cluster, Drain, Node, PartitionState, PlacedPartition
from goqueue.model.errors import InvalidRequest

POLL_SECONDS = 0.3
STUCK_SECONDS = 10.0  # without progress for this long, a drain depends on other nodes
STUCK_SHOWN = 3
EXIT_UNHEALTHY = 1

app = typer.Typer(no_args_is_help=True, help="Inspect the cluster, move partitions, drain nodes.")

NodeId = Annotated[int, typer.Argument(min=0, help="Id of the node.")]
NoWait = Annotated[
    bool, typer.Option("--detach", help="Return at once, without waiting for completion.")
]


@app.command()
def info(ctx: typer.Context) -> None:
    """Show an overview of the cluster."""
    with connect_http(ctx) as client:
        found = client.cluster.info()
    print_item(_info_row(found), current_call(ctx).output)


@app.command()
def secret(
    file: Annotated[
        Path | None,
        typer.Option(help="File to create, readable only by you; an existing file is kept."),
    ] = None,
) -> None:
    """Generate the secret by which the nodes of a cluster authenticate each other."""
    from goqueue.runtime.cluster_secret import make_secret_file, new_secret

    if file is None:
        print(new_secret())
        return
    try:
        is_new = make_secret_file(file)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be written: {error.strerror}.") from None
    print(f"{file} {'has a new secret' if is_new else 'already exists and is unchanged'}.")


@app.command()
def nodes(ctx: typer.Context) -> None:
    """List the nodes: addresses, state, and number of leaders and replicas."""
    with connect_http(ctx) as client:
        found = client.cluster.nodes()
    print_rows([_node_row(one) for one in found], current_call(ctx).output)


@app.command()
def health(ctx: typer.Context) -> None:
    """Report problems of the cluster; the exit code is 0 only if there are none."""
    with connect_http(ctx) as client:
        found = client.cluster.health()
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(
            f"The cluster is {found.status}." if found.status != "ok" else "The cluster is healthy."
        )
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
    node: Annotated[
        int | None, typer.Option(min=0, help="Only partitions with a replica on this node.")
    ] = None,
    leaderless: Annotated[
        bool, typer.Option("--leaderless", help="Only partitions without a leader.")
    ] = False,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated", help="Only partitions with replicas that are not in sync."
        ),
    ] = False,
    moving: Annotated[
        bool, typer.Option("--moving", help="Only partitions that are being reassigned.")
    ] = False,
) -> None:
    """List partitions with their leaders, replicas and in-sync replicas."""
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
        print("No partition matches.")
    print_rows([_partition_row(one, form) for one in found], form)


@app.command()
def elect(
    ctx: typer.Context,
    topic: Annotated[str | None, typer.Argument(help="Only this topic.")] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Where no in-sync replica is left, elect another one; records that it does not "
            "have are lost.",
        ),
    ] = False,
) -> None:
    """Elect the preferred leader (the first replica) of each partition."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        changes = client.cluster.elect(topic=topic, partitions=partition, unclean=unclean)
    form = current_call(ctx).output
    if not changes and form is OutputForm.TABLE:
        print("Every partition already has its preferred leader.")
    print_rows([change_row(one, "elected") for one in changes], form)
    fail_if_refused(changes)


@app.command()
def drain(ctx: typer.Context, node: NodeId, detach: NoWait = False) -> None:
    """Move all leaders away from a node, so that it can be stopped without an interruption."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        found = client.cluster.drain(node)
        if not detach:
            found = _wait_for_drain(client, found)
    form = current_call(ctx).output
    if form is not OutputForm.TABLE:
        print_item(_drain_row(found), form)
    elif found.leaders:
        print(f"Node {node} is draining; it still leads {found.leaders:,}, {_stuck(found)}.")
    else:
        print(f"Node {node} leads nothing and can be stopped; `undrain` reverts this.")


@app.command()
def undrain(ctx: typer.Context, node: NodeId) -> None:
    """Allow a drained node to lead partitions again."""
    with connect_http(ctx) as client:
        found = client.cluster.undrain(node)
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(f"Node {node} may lead again; leaders move back to it gradually.")
    else:
        print_item(_drain_row(found), form)


@app.command()
def unregister(ctx: typer.Context, node: NodeId) -> None:
    """Remove a node that was stopped permanently and has no replicas."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        client.cluster.unregister(node)
    if current_call(ctx).output is OutputForm.TABLE:
        print(f"Node {node} is removed from the cluster.")


app.command()(reassign.reassign)
app.command()(upgrade.upgrade)
app.add_typer(voters.app, name="voters")


def _wait_for_drain(client: Client, found: Drain) -> Drain:
    """Wait until a node leads nothing, or until there is no more progress."""
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


# Output


def _info_row(found: Cluster) -> dict[str, object]:
    return {
        "cluster": found.cluster_id,
        "controller": found.controller,
        "voters": listed(found.voters),
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
        "release": node.release or None,
        "levels": f"{node.level_min}-{node.level_max}",
        "rack": node.rack or None,
        "kafka": node.addresses.get("kafka"),
        "http": node.addresses.get("http"),
        "internal": node.addresses.get("internal"),
    }


def _partition_row(one: PlacedPartition, form: OutputForm) -> dict[str, object]:
    show = shower(form)
    return {
        "topic": one.topic,
        "partition": one.partition,
        "leader": one.leader,
        "epoch": one.leader_epoch,
        "replicas": show(one.replicas),
        "in_sync": show(one.in_sync),
        "moving_to": show(one.target) if one.target else None,
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
    return f"among them {named}, because no other replica is in sync"
