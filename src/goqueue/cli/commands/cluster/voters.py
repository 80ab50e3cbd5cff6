"""`goqueue cluster voters`: the voters of the metadata quorum."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.connecting import announce, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.output import print_rows
from goqueue.client.http import Voters

app = typer.Typer(
    invoke_without_command=True,
    help="List, add and remove voters of the metadata quorum, one at a time.",
)

NodeId = Annotated[int, typer.Argument(min=0, help="Id of the node.")]


@app.callback()
def voters(ctx: typer.Context) -> None:
    """List the voters of the metadata quorum, and the observers that only follow it.

    More than half of the voters must be running. To replace a voter that is lost permanently, start
    a new node with another id, then remove the old one.
    """
    if ctx.invoked_subcommand is None:
        with connect_http(ctx) as client:
            _show(ctx, client.cluster.voters())


@app.command()
def add(ctx: typer.Context, node: NodeId) -> None:
    """Make a node a voter; it must be running and caught up."""
    with connect_http(ctx) as client:
        _show(ctx, client.cluster.add_voter(node))


@app.command()
def remove(ctx: typer.Context, node: NodeId) -> None:
    """Remove a voter; refused if too few running voters would be left."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        _show(ctx, client.cluster.remove_voter(node))


def _show(ctx: typer.Context, found: Voters) -> None:
    rows: list[dict[str, object]] = [
        {
            "id": one.id,
            "role": "controller" if one.controller else "voter" if one.voter else "follower",
            "votes": one.voter,
            "running": one.running,
        }
        for one in found.voters
    ]
    print_rows(rows, current_call(ctx).output)
