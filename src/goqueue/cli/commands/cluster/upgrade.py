"""`goqueue cluster upgrade`: how far a rolling upgrade is, and its end."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.connecting import announce, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, print_item, print_rows
from goqueue.client.http import ClusterLevel
from goqueue.model.errors import InvalidRequest


def upgrade(
    ctx: typer.Context,
    status: Annotated[
        bool, typer.Option("--status", help="Show the level and the nodes; this is the default.")
    ] = False,
    finalize: Annotated[
        bool,
        typer.Option(
            "--finalize",
            help="Raise the feature level to the newest one that all nodes support. Earlier "
            "releases cannot be run on the data any more.",
        ),
    ] = False,
) -> None:
    """Show which release each node runs, and finalize an upgrade when all run the new one."""
    if status and finalize:
        raise InvalidRequest("Choose one of --status and --finalize.")
    with connect_http(ctx) as client:
        if finalize:
            announce(ctx, client)
        found = client.cluster.finalize_level() if finalize else client.cluster.level()
    _show(ctx, found)


def _show(ctx: typer.Context, found: ClusterLevel) -> None:
    form = current_call(ctx).output
    rows: list[dict[str, object]] = [
        {
            "id": one.id,
            "state": one.state,
            "release": one.release or None,
            "levels": f"{one.level_min}-{one.level_max}",
        }
        for one in found.nodes
    ]
    if form is not OutputForm.TABLE:
        print_item({"level": found.level, "supported": found.supported, "nodes": rows}, form)
        return
    print_rows(rows, form)
    print(_advice(found))


def _advice(found: ClusterLevel) -> str:
    if found.supported > found.level:
        return (
            f"The cluster uses feature level {found.level}, and all nodes support "
            f"{found.supported}. Run `goqueue cluster upgrade --finalize` when you will not go "
            "back to the release before."
        )
    behind = [str(one.id) for one in found.nodes if one.level_max == found.level]
    if any(one.level_max > found.level for one in found.nodes):
        return (
            f"The cluster uses feature level {found.level}; nodes still to be upgraded: "
            f"{', '.join(behind)}."
        )
    return f"The cluster uses feature level {found.level}, the newest of its nodes."
