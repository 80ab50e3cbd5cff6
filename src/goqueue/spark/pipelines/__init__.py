"""Pipelines: jobs on topics that can be repeated safely, also after a crash.

Each is a function with a thin command: `goqueue pipeline run NAME`. They keep no state in Spark:
the progress of a pipeline is in files beside its data.
"""

from goqueue.spark.pipelines.archive_reading import ArchiveCheck, read_archive, verify_archive
from goqueue.spark.pipelines.archiving import ArchiveResult, archive
from goqueue.spark.pipelines.compacting import CompactResult, compact, latest_per_key
from goqueue.spark.pipelines.journeys.results import JourneysResult
from goqueue.spark.pipelines.journeys.results import read_result as read_journeys
from goqueue.spark.pipelines.journeys.running import (
    JourneysQuery,
    audit_journeys,
    journeys_table,
)
from goqueue.spark.pipelines.lag_history import (
    Forecast,
    LagSample,
    append_lag,
    forecast,
    lag_history,
    read_lag,
    sample_lag,
)
from goqueue.spark.pipelines.letters import RedriveResult, dead_letters, redrive, triage
from goqueue.spark.pipelines.redistributing import RedistributeResult, redistribute
from goqueue.spark.pipelines.replaying import ReplayResult, replay
from goqueue.spark.pipelines.report import write_report
from goqueue.spark.pipelines.selection import Selection, select
from goqueue.spark.pipelines.typing_tables import (
    TypedResult,
    read_typed,
    read_undecodable,
    typed,
    verify_typed,
)

__all__ = [
    "ArchiveCheck",
    "ArchiveResult",
    "CompactResult",
    "Forecast",
    "JourneysQuery",
    "JourneysResult",
    "LagSample",
    "RedistributeResult",
    "RedriveResult",
    "ReplayResult",
    "Selection",
    "TypedResult",
    "append_lag",
    "archive",
    "audit_journeys",
    "compact",
    "dead_letters",
    "forecast",
    "journeys_table",
    "lag_history",
    "latest_per_key",
    "read_archive",
    "read_journeys",
    "read_lag",
    "read_typed",
    "read_undecodable",
    "redistribute",
    "redrive",
    "replay",
    "sample_lag",
    "select",
    "triage",
    "typed",
    "verify_archive",
    "verify_typed",
    "write_report",
]
