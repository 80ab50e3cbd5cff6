"""The two groups of commands, and the pipelines that there are."""

from __future__ import annotations

import typer

from goqueue.cli.context import current_call
from goqueue.cli.output import print_rows

app = typer.Typer(no_args_is_help=True, help="Run jobs on whole topics, with Spark.")
run = typer.Typer(no_args_is_help=True, help="Run a pipeline; each can run twice without harm.")
app.add_typer(run, name="run")

PIPELINES = {
    "archive": "topics into Parquet files; goes on where it ended",
    "verify": "an archive against its manifests: every file, count and checksum",
    "replay": "an archive, or a range of a topic, back into a topic",
    "compact": "the latest record of each key, as an archive of its own",
    "redistribute": "a topic into one with more partitions, in the order of each key",
    "typed": "a topic, or an archive, as a table with the columns of its schema",
    "deadletters": "dead letters by reason, key, time and source; bring some back",
    "lag": "how far groups are behind, kept over time, and where it leads",
}


@app.command("list")
def list_pipelines(ctx: typer.Context) -> None:
    """List the pipelines."""
    rows = [{"pipeline": name, "what": what} for name, what in PIPELINES.items()]
    print_rows(rows, current_call(ctx).output)
