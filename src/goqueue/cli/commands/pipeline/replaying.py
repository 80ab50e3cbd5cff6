"""`goqueue pipeline run replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goqueue.cli.commands.pipeline.commands import run
from goqueue.cli.commands.pipeline.options import Conf, From, Mark, Master, NoVerify, Until, Where
from goqueue.cli.commands.pipeline.session import (
    need_spark,
    print_result,
    spark_access,
    spark_session,
)
from goqueue.cli.commands.queue.dead_letters import read_header_filter, read_moment_ms
from goqueue.cli.connecting import http_address, kafka_address
from goqueue.cli.moments import now_ms, read_position
from goqueue.client import PositionKind

if TYPE_CHECKING:
    from goqueue.spark.options import Start
    from goqueue.spark.pipelines import Selection


@run.command()
def replay(
    ctx: typer.Context,
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Topic to write to.")],
    run_id: Annotated[
        str,
        typer.Option("--run", metavar="NAME", help="Name of the run; the same name continues it."),
    ],
    archive: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Archive to replay.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Topic to replay, as it is now, instead of an archive.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder for the progress; default in the archive."),
    ] = None,
    from_: From = None,
    until: Until = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="Only this key; may be repeated.")
    ] = None,
    header: Annotated[
        str | None, typer.Option(metavar="NAME[=VALUE]", help="Only records with this header.")
    ] = None,
    where: Where = None,
    keep_timestamps: Annotated[
        bool, typer.Option(help="Keep the original timestamps, or write the current time.")
    ] = True,
    partitioning: Annotated[
        Literal["key", "same"], typer.Option(help="Choose partitions by key, or as in the source.")
    ] = "key",
    mark: Mark = False,
    no_verify: NoVerify = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Replay an archive or a topic into a topic, and verify counts and checksums there."""
    selection = _selection(from_, until, key, header, where)
    with spark_session(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.replay(
            spark,
            kafka_address(ctx),
            to,
            run_id=run_id,
            archive=archive,
            topic=topic,
            state=state,
            selection=selection,
            start=_start(from_) if topic is not None else None,
            keeps_timestamps=keep_timestamps,
            partitioning=partitioning,
            is_marked=mark,
            is_verified=not no_verify,
            http=http_address(ctx),
            access=spark_access(ctx),
            on_progress=tick,
        )
    print_result(
        ctx,
        {
            "run": done.run_id,
            "copied": done.copied,
            "present": done.present,
            "records": done.digest.records,
            "checksum": f"{done.digest.content:016x}",
            "verified": done.verified,
            "unplaced": done.unplaced,
            "seconds": round(done.seconds, 3),
        },
    )


def _selection(
    from_: str | None,
    until: str | None,
    keys: list[str] | None,
    header: str | None,
    where: str | None,
) -> Selection:
    need_spark()
    from goqueue.spark.pipelines import Selection

    name, value = read_header_filter(header) or (None, None)
    return Selection(
        from_ms=read_moment_ms(from_, now_ms=now_ms()),
        until_ms=read_moment_ms(until, now_ms=now_ms()),
        keys=tuple(key.encode() for key in keys or ()),
        header_name=name,
        header_value=None if value is None else value.encode(),
        where=where,
    )


def _start(from_: str | None) -> Start | None:
    """Where reading starts; the exact time is filtered later."""
    from goqueue.spark.options import EARLIEST, Start

    if from_ is None:
        return None
    position = read_position(from_, now_ms=now_ms())
    return (
        Start(EARLIEST, timestamp_ms=position.value) if position.kind is PositionKind.TIME else None
    )
