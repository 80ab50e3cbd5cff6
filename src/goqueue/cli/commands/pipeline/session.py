"""What the commands share: a Spark session, a progress bar, and the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from goqueue.cli.context import current_call
from goqueue.cli.output import print_item, progress
from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STEPS = 1000  # of the progress bar
Tick = Callable[[int, int], object]


@contextmanager
def spark_session(master: str, conf: list[str] | None) -> Iterator[tuple[SparkSession, Tick]]:
    """Open a session and a progress bar; an existing session is used and not stopped."""
    settings = _settings(conf or [])
    need_spark()
    from pyspark.sql import SparkSession

    import goqueue.spark
    from goqueue.spark.pipelines.jobs import plain_errors

    is_ours = SparkSession.getActiveSession() is None
    with plain_errors():
        session = goqueue.spark.session(master, name="goqueue pipeline", settings=settings)
    try:
        with progress(_STEPS) as tick, plain_errors():
            yield session, lambda done, total: tick(_STEPS * done // max(total, 1))
    finally:
        if is_ours:
            session.stop()


def _settings(conf: list[str]) -> dict[str, str]:
    settings = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
    for text in conf:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidRequest(f"--conf {text!r} is not a Spark setting; write spark.NAME=VALUE.")
        settings[name] = value
    return settings


def need_spark() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise InvalidRequest(
            "Pipelines need Spark; install it with `pip install goqueue[spark]` (or `make "
            "setup-spark`)."
        )


def print_result(ctx: typer.Context, item: dict[str, object]) -> None:
    print_item(item, current_call(ctx).output)
