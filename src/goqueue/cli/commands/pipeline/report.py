"""`goqueue pipeline report`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.commands import app
from goqueue.cli.commands.pipeline.session import need_spark, print_result
from goqueue.cli.connecting import connect_http
from goqueue.cli.moments import now_ms


@app.command()
def report(
    ctx: typer.Context,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="HTML file to write.")],
    archive: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Archive to include; may be repeated."),
    ] = None,
    lag: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder written by `run lag`.")
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder written by `run deadletters --save`."),
    ] = None,
    journeys: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder written by `run journeys`.")
    ] = None,
    publish: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Publish its texts and tables to the broker, by this name."
        ),
    ] = "",
    bound: Annotated[int | None, typer.Option(min=1, help="Lag at which to warn.")] = None,
) -> None:
    """Write an HTML page on archived records, their delay, dead letters, lag and journeys."""
    need_spark()
    from goqueue.spark import pipelines

    with connect_http(ctx) if publish else nullcontext() as client:
        file = pipelines.write_report(
            to,
            now_ms=now_ms(),
            archives=archive or [],
            lag=lag,
            dead_letters=dead_letters,
            journeys=journeys,
            lag_bound=bound,
            client=client,
            name=publish,
        )
    print_result(ctx, {"report": str(file), "bytes": file.stat().st_size})
