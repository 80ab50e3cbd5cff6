"""`goqueue pipeline run compact`."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.commands import run
from goqueue.cli.commands.pipeline.options import AcceptLoss, Conf, Folder, Master
from goqueue.cli.commands.pipeline.session import print_result, spark_access, spark_session
from goqueue.cli.connecting import kafka_address


@run.command()
def compact(
    ctx: typer.Context,
    to: Folder,
    topic: Annotated[str | None, typer.Option(help="Topic to compact.")] = None,
    archive: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Archive to compact instead of a topic.")
    ] = None,
    drop_tombstones: Annotated[
        bool,
        typer.Option("--drop-tombstones", help="Omit keys whose latest record is a tombstone."),
    ] = False,
    keep_keyless: Annotated[
        bool, typer.Option("--keep-keyless", help="Keep all records without a key.")
    ] = False,
    accept_loss: AcceptLoss = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Write the latest record of each key as a snapshot into a folder of its own."""
    with spark_session(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.compact(
            spark,
            to,
            bootstrap=kafka_address(ctx),
            topic=topic,
            archive=archive,
            keeps_tombstones=not drop_tombstones,
            keeps_keyless=keep_keyless,
            fails_on_data_loss=not accept_loss,
            access=spark_access(ctx),
            on_progress=tick,
        )
    found = done.manifest
    print_result(
        ctx,
        {
            "archive": to,
            "manifest": None if found is None else found.number,
            "records": None if found is None else found.digest.records,
            "files": None if found is None else len(found.files),
            "losses": [] if found is None else list(found.losses),
            "seconds": round(done.seconds, 3),
        },
    )
