"""What the commands share: a Spark session, a progress bar, and the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
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


def spark_access(ctx: typer.Context) -> dict[str, str]:
    """The login and the certificates of this call, as options of the data source."""
    access = current_call(ctx).access
    options = {
        "username": access.user,
        "password": access.password,
        "apiKey": access.api_key,
        "saslMechanism": access.sasl_mechanism if access.user else "",
    }
    if access.is_encrypted:
        options |= {
            "tls": "true",
            "caFile": _absolute(access.ca_file),
            "clientCertificate": _absolute(access.client_certificate),
            "clientKey": _absolute(access.client_key),
        }
    return {name: value for name, value in options.items() if value}


def _absolute(file: str) -> str:
    """The same file for workers, which have folders of their own."""
    return str(Path(file).absolute()) if file else ""


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
