"""The two command groups, and the list of pipelines."""

from __future__ import annotations

import typer

from goqueue.cli.context import current_call
from goqueue.cli.output import print_rows

app = typer.Typer(no_args_is_help=True, help="Run Spark jobs on whole topics.")
run = typer.Typer(no_args_is_help=True, help="Run a pipeline; all pipelines are idempotent.")
app.add_typer(run, name="run")

PIPELINES = {
    "archive": "appends new records of topics to Parquet files",
    "verify": "checks every file, count and checksum of an archive",
    "replay": "writes an archive, or a range of a topic, into a topic",
    "compact": "writes the latest record of each key as an archive",
    "redistribute": "copies a topic into one with more partitions, keeping the order of each key",
    "typed": "writes a topic, or an archive, as a table with the columns of its schema",
    "deadletters": "counts dead letters by reason, key, time and source; redrives some",
    "journeys": "accounts for all messages and finds lost ones; measures latency hop by hop",
    "lag": "records the lag of groups over time, and its trend",
}


@app.command("list")
def list_pipelines(ctx: typer.Context) -> None:
    """List the pipelines."""
    rows = [{"pipeline": name, "what": what} for name, what in PIPELINES.items()]
    print_rows(rows, current_call(ctx).output)
