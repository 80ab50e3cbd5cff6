"""`goqueue cluster voters`: the nodes that vote on what the cluster decides."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.context import current_call
from goqueue.cli.http import connect_http
from goqueue.cli.output import print_rows
from goqueue.cli.target import announce
from goqueue.client.http import Voters

app = typer.Typer(invoke_without_command=True, help="List, add and remove voters, one at a time.")

NodeId = Annotated[int, typer.Argument(min=0, help="Id of the node.")]


@app.callback()
def voters(ctx: typer.Context) -> None:
    """List the nodes that vote on what the cluster decides, and those that only follow.

    More than half of the voters must run. A voter that is lost for good is replaced by a new node
    with another id: start that, then remove the old one.
    """
    if ctx.invoked_subcommand is None:
        with connect_http(ctx) as client:
            _show(ctx, client.cluster.voters())


@app.command()
def add(ctx: typer.Context, node: NodeId) -> None:
    """Let a node vote that runs and has caught up."""
    with connect_http(ctx) as client:
        _show(ctx, client.cluster.add_voter(node))


@app.command()
def remove(ctx: typer.Context, node: NodeId) -> None:
    """Let a node vote no more; refused where too few voters that run would be left."""
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
