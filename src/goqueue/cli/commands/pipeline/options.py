"""Options that several pipelines take."""

from __future__ import annotations

from typing import Annotated

import typer

Master = Annotated[
    str,
    typer.Option(
        envvar="GOQUEUE_SPARK_MASTER", help="Spark master: local[*], spark://HOST:7077, yarn."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; may be repeated."),
]
Folder = Annotated[str, typer.Option("--to", metavar="FOLDER", help="Folder to write to.")]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Continue if records were deleted before they were read."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="2h|TIME", help="Only records at or after this time."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="2h|TIME", help="Only records before this time.")
]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="SQL", help="Only records that satisfy this condition, such as offset % 10 = 0."
    ),
]
NoVerify = Annotated[
    bool, typer.Option("--no-verify", help="Do not read the target again to verify it.")
]
Mark = Annotated[
    bool,
    typer.Option("--mark", help="Add a header with the source of each record."),
]
