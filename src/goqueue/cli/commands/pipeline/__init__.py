"""`goqueue pipeline`: Spark jobs on whole topics, such as archive, replay and compact.

Each pipeline is one file. A command is registered when its file is imported, so the order of the
imports is the order of the help and of `pipeline list`.
"""

# isort: off
from goqueue.cli.commands.pipeline.commands import PIPELINES, app, run
from goqueue.cli.commands.pipeline import (
    archiving,
    replaying,
    compacting,
    redistributing,
    typing,
    letters,
    journeys,
    lag,
    report,
)
# isort: on

__all__ = [
    "PIPELINES",
    "app",
    "archiving",
    "compacting",
    "journeys",
    "lag",
    "letters",
    "redistributing",
    "replaying",
    "report",
    "run",
    "typing",
]
