"""`goqueue pipeline run journeys`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.commands.pipeline.commands import run
from goqueue.cli.commands.pipeline.options import Conf, Folder, From, Master, Until
from goqueue.cli.commands.pipeline.session import print_result, spark_access, spark_session
from goqueue.cli.commands.queue.dead_letters import read_moment_ms
from goqueue.cli.connecting import kafka_address
from goqueue.cli.context import current_call
from goqueue.cli.moments import now_ms, read_duration_ms
from goqueue.cli.output import OutputForm, print_rows

if TYPE_CHECKING:
    from goqueue.spark.pipelines import JourneysResult


@run.command()
def journeys(
    ctx: typer.Context,
    to: Folder,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Only this group; may be repeated.")
    ] = None,
    from_: From = None,
    until: Until = None,
    grace: Annotated[
        str,
        typer.Option(
            help="Messages that a group went past count as lost after so long without any event; "
            "longer than leases and delays."
        ),
    ] = "15m",
    slow: Annotated[str, typer.Option(help="Hops that take longer are reported.")] = "1m",
    no_log: Annotated[
        bool, typer.Option("--no-log", help="Do not look up in the log what seems to be lost.")
    ] = False,
    journal: Annotated[
        str, typer.Option(help="Topic to read; another one than __journeys has to be a copy.")
    ] = "__journeys",
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Account for all messages, and measure how long each hop of theirs took."""
    now = now_ms()
    with spark_session(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        query = pipelines.JourneysQuery(
            topics=tuple(topic or ()),
            groups=tuple(group or ()),
            from_ms=read_moment_ms(from_, now_ms=now),
            until_ms=read_moment_ms(until, now_ms=now),
            grace_ms=read_duration_ms(grace),
            slow_ms=read_duration_ms(slow),
            checks_log=not no_log,
            journal=journal,
            now_ms=now,
        )
        found = pipelines.audit_journeys(
            spark, kafka_address(ctx), to, query, access=spark_access(ctx), on_progress=tick
        )
    _print(ctx, to, found)


def _print(ctx: typer.Context, to: str, found: JourneysResult) -> None:
    accounts = [
        {
            "tenant": one.tenant,
            "topic": one.topic,
            "group": one.group,
            "messages": one.messages,
            **{state: one.states.get(state, 0) for state in found.states},
            "redelivered": one.redelivered,
        }
        for one in found.accounts
    ]
    problems = {one.problem: one.messages for one in found.problem_counts}
    if current_call(ctx).output is not OutputForm.TABLE:
        fields = {"journeys": to, "events": found.events, "accounts": accounts}
        print_result(ctx, {**fields, "problems": problems})
        return
    print_rows(accounts, OutputForm.TABLE)
    print()
    rows = [{"problem": name, "messages": count} for name, count in problems.items()]
    print_rows(rows or [{"problem": "none", "messages": 0}], OutputForm.TABLE)
