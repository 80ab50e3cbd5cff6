"""`goqueue pipeline run lag`."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.commands import run
from goqueue.cli.commands.pipeline.options import Folder
from goqueue.cli.commands.pipeline.session import need_spark
from goqueue.cli.connecting import connect
from goqueue.cli.context import current_call
from goqueue.cli.moments import now_ms, read_duration_ms, show_time
from goqueue.cli.output import OutputForm, print_rows


@run.command()
def lag(
    ctx: typer.Context,
    to: Folder,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Only this group; may be repeated.")
    ] = None,
    window: Annotated[str, typer.Option(help="Period over which rates are computed.")] = "1h",
    bound: Annotated[
        int | None, typer.Option(min=1, help="Estimate when the lag reaches this many records.")
    ] = None,
) -> None:
    """Add the current lag to its history, and show the trend. Needs no Spark session."""
    need_spark()
    from goqueue.spark import pipelines

    now, window_ms = now_ms(), read_duration_ms(window)
    with connect(ctx) as client:
        samples = pipelines.sample_lag(client, time_ms=now, groups=group)
    pipelines.append_lag(to, samples)
    history = pipelines.read_lag(to, from_ms=now - window_ms)
    seen = {(one.group, one.topic, one.partition) for one in samples}
    forecasts = [
        one
        for one in pipelines.forecast(history, bound=bound)
        if (one.last.group, one.last.topic, one.last.partition) in seen
    ]
    form = current_call(ctx).output
    if not forecasts and form is OutputForm.TABLE:
        print("No group has committed anything yet.")
    print_rows(
        [
            {
                "group": one.last.group,
                "topic": one.last.topic,
                "partition": one.last.partition,
                "lag": one.last.lag,
                "samples": one.samples,
                "produced_per_s": _rounded(one.produced_per_s),
                "consumed_per_s": _rounded(one.consumed_per_s),
                "gone_at": None if one.gone_at_ms is None else show_time(one.gone_at_ms),
                "bound_at": None if one.bound_at_ms is None else show_time(one.bound_at_ms),
            }
            for one in forecasts
        ],
        form,
    )


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)
