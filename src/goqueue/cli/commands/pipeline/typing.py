"""`goqueue pipeline run typed`."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.commands import run
from goqueue.cli.commands.pipeline.options import AcceptLoss, Conf, Folder, Master
from goqueue.cli.commands.pipeline.session import print_result, spark_access, spark_session
from goqueue.cli.connecting import http_address, kafka_address
from goqueue.cli.context import current_call
from goqueue.client.http.settings import base_url
from goqueue.model.errors import InvalidRequest


@run.command()
def typed(
    ctx: typer.Context,
    to: Folder,
    topic: Annotated[
        str | None, typer.Argument(help="Topic to read, from the broker or from the archive.")
    ] = None,
    archive: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Archive to read instead of the broker.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Schema registry; default that of the broker."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="Subject of the values; default TOPIC-value.")
    ] = None,
    schema_version: Annotated[
        int | None, typer.Option(min=1, help="Schema version of the values; default the latest.")
    ] = None,
    message: Annotated[
        str | None, typer.Option(help="Message type of a Protobuf schema; default the first.")
    ] = None,
    key: Annotated[bool, typer.Option("--key", help="Decode the keys by a schema too.")] = False,
    key_subject: Annotated[
        str | None, typer.Option(help="Subject of the keys; default TOPIC-key.")
    ] = None,
    key_schema_version: Annotated[
        int | None, typer.Option(min=1, help="Schema version of the keys; default the latest.")
    ] = None,
    task_records: Annotated[
        int | None, typer.Option(min=1, help="Most records per task; default by size.")
    ] = None,
    accept_loss: AcceptLoss = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the table again to verify it.")
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Append new records of a topic or an archive to a typed table of Parquet files."""
    if topic is None and archive is None:
        raise InvalidRequest("Give a topic, or an archive with --archive.")
    with spark_session(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.typed(
            spark,
            to,
            registry=registry
            or registry_beside(
                http_address(ctx), is_encrypted=current_call(ctx).access.is_encrypted
            ),
            bootstrap=kafka_address(ctx),
            topic=topic,
            archive=archive,
            subject=subject,
            version=schema_version,
            message=message,
            is_key_typed=key,
            key_subject=key_subject,
            key_version=key_schema_version,
            records_per_task_max=task_records,
            fails_on_data_loss=not accept_loss,
            access=spark_access(ctx),
            on_progress=tick,
        )
        if verify:
            pipelines.verify_typed(spark, to, on_progress=tick)
    found = done.manifest
    notes = {} if found is None else found.schemas
    print_result(
        ctx,
        {
            "table": to,
            "manifest": None if found is None else found.number,
            "records": 0 if found is None else found.digest.records,
            "rows": 0 if found is None else found.rows,
            "undecodable": 0 if found is None else found.undecodable_rows,
            "files": 0 if found is None else len(found.files),
            "bytes": 0 if found is None else sum(file.bytes for file in found.files),
            "schemas": [f"{one.subject} version {one.version}" for one in notes.values()],
            "losses": [] if found is None else list(found.losses),
            "strays_removed": done.strays_removed,
            "verified": verify,
            "seconds": round(done.seconds, 3),
        },
    )


def registry_beside(http: str, *, is_encrypted: bool = False) -> str:
    """The URL of the schema registry that every broker serves under its HTTP API."""
    return f"{base_url(http, is_encrypted=is_encrypted)}/registry"
