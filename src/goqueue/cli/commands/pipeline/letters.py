"""`goqueue pipeline run deadletters`."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.commands import run
from goqueue.cli.commands.pipeline.options import Conf, Master, Where
from goqueue.cli.commands.pipeline.session import spark_access, spark_session
from goqueue.cli.connecting import connect_http, kafka_address
from goqueue.cli.context import current_call
from goqueue.cli.moments import now_ms, show_time
from goqueue.cli.output import OutputForm, print_item, print_rows


@run.command()
def deadletters(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic that the dead letters come from.")],
    dead_letter_topic: Annotated[
        str | None, typer.Option(help="Dead-letter topic; default TOPIC.dlq.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Count by reason, group, key, hour or source; may be repeated."),
    ] = None,
    where: Where = None,
    save: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Save the tables for the report.")
    ] = None,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Redrive the selected dead letters.")
    ] = False,
    keep_copy: Annotated[
        bool, typer.Option("--keep-copy", help="Keep the dead letters too.")
    ] = False,
    rate: Annotated[
        int | None, typer.Option(min=1, help="Most dead letters to redrive per second.")
    ] = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Count dead letters, and redrive a selection of them."""
    lying_in = dead_letter_topic or f"{topic}.dlq"
    with spark_session(master, conf) as (spark, tick):
        from goqueue.spark.pipelines import Selection, letters, select

        groupings = by or list(letters.GROUPINGS)
        for one in groupings:
            letters.check_grouping(one)
        found = letters.read_letters(spark, kafka_address(ctx), lying_in, access=spark_access(ctx))
        chosen = select(found, Selection(where=where))
        counted = letters.collect_triage(chosen, lying_in, groupings, time_ms=now_ms())
        if save is not None:
            letters.save_triage(save, counted)
        moved = None
        if redrive:
            with connect_http(ctx) as client:
                moved = letters.redrive(
                    chosen,
                    client,
                    topic,
                    dead_letter_topic=dead_letter_topic,
                    keep_copy=keep_copy,
                    rate_per_s=rate,
                    on_progress=tick,
                )
    _print_triage(ctx, counted, moved)


def _print_triage(ctx: typer.Context, counted: object, moved: object) -> None:
    from goqueue.spark.pipelines.letters import RedriveResult, Triage

    assert isinstance(counted, Triage)
    form = current_call(ctx).output
    tables = {
        by: [
            {
                by: row.what,
                "letters": row.letters,
                "first": None if row.first_ms is None else show_time(row.first_ms),
                "last": None if row.last_ms is None else show_time(row.last_ms),
            }
            for row in rows
        ]
        for by, rows in counted.tables.items()
    }
    item: dict[str, object] = {"topic": counted.topic, **tables}
    if isinstance(moved, RedriveResult):
        item["redrive"] = {
            "selected": moved.selected,
            "moved": moved.moved,
            "passed_over": moved.passed_over,
        }
    if form is not OutputForm.TABLE:
        print_item(item, form)
        return
    for rows in tables.values():
        print_rows(rows, form)
        print()
    if isinstance(moved, RedriveResult):
        print(f"{moved.moved:,} of {moved.selected:,} dead letters are redriven.")
