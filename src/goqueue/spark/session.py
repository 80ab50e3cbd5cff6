"""Spark sessions with settings that suit the data source: sockets, chunks, packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow fields are read without checks that the reader has already made.
_ARROW_FLAGS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

# Settings that must be set when a session starts.
START_SETTINGS = {
    # Sockets between the JVM and its Python workers lack TCP_NODELAY: 45 ms for each task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.ui.showConsoleProgress": "false",
    # Spark hides the values of options with such names in plans, in logs and in its UI. Its own
    # pattern has neither API keys nor the logins of Kafka.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|api[._-]?key|jaas",
}
# Our Java options are added to the user's and never replace them.
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def session(
    master: str = "local[*]",
    *,
    name: str = "goqueue",
    settings: dict[str, str] | None = None,
    access: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session for `spark.read.format("goqueue")`; an existing one is tuned and returned.

    `settings` are Spark settings and take precedence over ours. `access` are options for TLS and
    credentials, as those of the data source, for what the driver itself does about streams: it
    shows their progress and acknowledges messages of queues. By default they are those of the
    environment (GOQUEUE_API_KEY, or GOQUEUE_USER and GOQUEUE_PASSWORD; GOQUEUE_CA_FILE).
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return enable(active, access=access)
    chosen = {**START_SETTINGS, **(settings or {})}
    if master.startswith("local"):
        # Otherwise workers run the first python3 on the path, with other packages or none.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for option in _JAVA_OPTIONS:
        chosen[option] = f"{_ARROW_FLAGS} {chosen.get(option, '')}".strip()
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return enable(builder.getOrCreate(), access=access)


def enable(spark: SparkSession, *, access: Mapping[str, str] | None = None) -> SparkSession:
    """Check that a session can read `format("goqueue")`, and publish the progress of its streams.

    The format itself needs no registration: Spark finds it by the name of a package. `access` is
    that of `session`; it counts when a session is enabled for the first time.
    """
    from goqueue.spark.access import access_of
    from goqueue.spark.driver_access import DriverAccess
    from goqueue.spark.queues.listener import QueueListener
    from goqueue.spark.streams.progress import ProgressListener

    if spark not in _listened_to:
        _check_workers(spark)
        login = DriverAccess(access_of(access))
        spark.streams.addListener(ProgressListener(login))
        spark.streams.addListener(QueueListener(login))
        _listened_to.add(spark)
    return spark


def _check_workers(spark: SparkSession) -> None:
    """Refuse a local session whose workers run a Python without this package."""
    context = getattr(spark, "_sc", None)  # Spark Connect sessions have none.
    if context is None or not context.master.startswith("local"):
        return
    python = shutil.which(context.pythonExec)
    if python is None or python == sys.executable:
        return
    found = subprocess.run([python, "-c", _FIND_SOURCE], capture_output=True, check=False)
    if found.returncode:
        raise InvalidRequest(
            f"The workers of this session run {python}, which has no package goqueue. Set "
            f"PYSPARK_PYTHON={sys.executable} before the session starts, or install goqueue[spark] "
            "there."
        )


_FIND_SOURCE = (
    "import sys; from importlib.util import find_spec; sys.exit(not find_spec('pyspark_goqueue'))"
)

_listened_to: WeakSet[SparkSession] = WeakSet()
