"""`goqueue pipeline run archive` and `verify`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from goqueue.cli.commands.pipeline.commands import run
from goqueue.cli.commands.pipeline.options import AcceptLoss, Conf, Folder, Master
from goqueue.cli.commands.pipeline.session import print_result, spark_access, spark_session
from goqueue.cli.connecting import kafka_address


@run.command()
def archive(
    ctx: typer.Context,
    topics: Annotated[list[str], typer.Argument(help="Topics to archive.")],
    to: Folder,
    layout: Annotated[
        Literal["time", "partition"],
        typer.Option(help="Layout of folders: by date and hour, or by partition."),
    ] = "time",
    task_records: Annotated[
        int | None, typer.Option(min=1, help="Most records per task; default by size.")
    ] = None,
    accept_loss: AcceptLoss = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Read the archive again and compare it with its manifests."),
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Append new records of topics to an archive of Parquet files."""
    with spark_session(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.archive(
            spark,
            kafka_address(ctx),
            topics,
            to,
            layout=layout,
            records_per_task_max=task_records,
            fails_on_data_loss=not accept_loss,
            access=spark_access(ctx),
            on_progress=tick,
        )
        if verify:
            pipelines.verify_archive(spark, to, on_progress=tick)
    found = done.manifest
    print_result(
        ctx,
        {
            "archive": to,
            "manifest": None if found is None else found.number,
            "records": 0 if found is None else found.digest.records,
            "files": 0 if found is None else len(found.files),
            "bytes": 0 if found is None else sum(file.bytes for file in found.files),
            "checksum": None if found is None else f"{found.digest.content:016x}",
            "losses": [] if found is None else list(found.losses),
            "strays_removed": done.strays_removed,
            "verified": verify,
            "seconds": round(done.seconds, 3),
        },
    )


@run.command()
def verify(
    ctx: typer.Context,
    folder: Annotated[str, typer.Argument(help="Folder of the archive.")],
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Read an archive again and compare it with its manifests."""
    with spark_session(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        found = pipelines.verify_archive(spark, folder, on_progress=tick)
    digest = found.digest
    print_result(
        ctx,
        {
            "archive": folder,
            "files": found.files,
            "records": digest.records,
            "checksum": f"{digest.content:016x}",
        },
    )
