"""`goqueue pipeline run redistribute`."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.commands import run
from goqueue.cli.commands.pipeline.options import Conf, Mark, Master, NoVerify
from goqueue.cli.commands.pipeline.session import print_result, spark_access, spark_session
from goqueue.cli.connecting import http_address, kafka_address


@run.command()
def redistribute(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="Topic to read.")],
    target: Annotated[str, typer.Argument(help="Topic to write; created if it does not exist.")],
    state: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for the progress, used by this job only.")
    ],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="Partitions of the target, if it is created."
        ),
    ] = None,
    mark: Mark = False,
    no_verify: NoVerify = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Copy new records of a topic into another, partitioned by key as its producers do."""
    with spark_session(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.redistribute(
            spark,
            kafka_address(ctx),
            source,
            target,
            state,
            partitions=partitions,
            is_marked=mark,
            is_verified=not no_verify,
            http=http_address(ctx),
            access=spark_access(ctx),
            on_progress=tick,
        )
    print_result(
        ctx,
        {
            "target": target,
            "partitions": done.partitions,
            "copied": done.copied,
            "records": done.digest.records,
            "checksum": f"{done.digest.content:016x}",
            "verified": done.verified,
            "seconds": round(done.seconds, 3),
        },
    )
