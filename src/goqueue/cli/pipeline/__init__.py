"""`goqueue pipeline`: jobs on whole topics, with Spark: archive, replay, compact and so on.

One file for each pipeline. A command joins its group when its file is imported, so the order of the
imports is that of the help and of `pipeline list`.
"""

# isort: off
from goqueue.cli.pipeline.commands import PIPELINES, app, run
from goqueue.cli.pipeline import (
    archiving,
    replaying,
    compacting,
    redistributing,
    typing,
    letters,
    lag,
    report,
)
# isort: on

__all__ = [
    "PIPELINES",
    "app",
    "archiving",
    "compacting",
    "lag",
    "letters",
    "redistributing",
    "replaying",
    "report",
    "run",
    "typing",
]
