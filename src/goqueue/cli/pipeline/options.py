"""Options that several pipelines take."""

from __future__ import annotations

from typing import Annotated

import typer

Master = Annotated[
    str,
    typer.Option(
        envvar="GOQUEUE_SPARK_MASTER", help="Where Spark runs: local[*], spark://HOST:7077, yarn."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Folder = Annotated[str, typer.Option("--to", metavar="FOLDER", help="Folder to write to.")]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Go on if records are gone that were not read yet."),
]
From = Annotated[
    str | None, typer.Option("--from", metavar="2h|TIME", help="Only records since then.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="2h|TIME", help="Only records before then.")
]
Where = Annotated[
    str | None,
    typer.Option(metavar="SQL", help="Only records for which this holds, as offset % 10 = 0."),
]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not read the target again.")]
Mark = Annotated[
    bool,
    typer.Option("--mark", help="Mark records with a header that says where they are from."),
]
