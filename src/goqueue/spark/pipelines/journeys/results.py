"""What is kept of a run: a summary as JSON, which names the folder with the tables.

    FOLDER/journeys.json
    FOLDER/data/RUN/parts, problems, latencies, schedules     Parquet

The summary is replaced when all tables of a run are complete. So a run that is repeated, or was
killed, leaves the tables of one run: those that the summary names.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines.folders import folder_of, write_over

SUMMARY = "journeys.json"
DATA = "data"
TABLES = ("parts", "problems", "latencies", "schedules")

# How messages stand, by themselves or in a group.
STATES = (
    "stored",  # of messages, whatever their groups
    "acked",
    "consumed",
    "dead_lettered",
    "expired",
    "skipped",
    "in_flight",
    "waiting",
    "retired",
    "before",  # stored before the group began, where it did not begin to read
    "recovered",  # a crash has lost the details
    "removed",  # not in the log: aborted, compacted or deleted
    "unstored",  # received and not committed
    "lost",
)
SCHEDULE_STATES = ("released", "cancelled", "pending", "overdue")


class JournalRange(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of a partition of the journal had events; `end` is not included."""

    partition: int
    first: int
    end: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of a topic stand how, in a group or by themselves."""

    tenant: str
    topic: str
    group: str | None
    messages: int
    redelivered: int = 0
    states: Mapping[str, int]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of adjacent offsets with the same problem."""

    problem: str
    tenant: str
    topic: str
    partition: int
    group: str | None
    first: int
    end: int
    messages: int
    received_ms: int | None = None
    latency_ms: float | None = None  # the longest hop


class ProblemCount(msgspec.Struct, frozen=True, kw_only=True):
    problem: str
    messages: int
    ranges: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of a hop; `by` names the dimensions that are not null."""

    hop: str
    by: str
    topic: str | None
    group: str | None
    tenant: str | None
    hour_ms: int | None
    messages: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    mean_ms: float


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the slowest messages, and the latency of each of their hops."""

    tenant: str
    topic: str
    partition: int
    group: str | None
    first: int
    end: int
    received_ms: int
    hops: Mapping[str, float]


class JourneysResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run. The tables have all rows; lists here have the first ones."""

    format: str = "goqueue-journeys"
    version: int = 1
    run: str
    time_ms: int
    from_ms: int | None
    until_ms: int | None
    grace_ms: int
    slow_ms: int
    events: int
    parts: int
    journal: Sequence[JournalRange]
    accounts: Sequence[Account]
    schedules: Sequence[Account]
    problem_counts: Sequence[ProblemCount]
    problems: Sequence[Problem]
    latencies: Sequence[Latency]
    slowest: Sequence[Slow]

    @property
    def states(self) -> list[str]:
        """Return the states that some messages have, in the order of `STATES`."""
        return [state for state in STATES if any(state in one.states for one in self.accounts)]

    def count(self, problem: str) -> int:
        """Return how many messages have a problem."""
        return sum(one.messages for one in self.problem_counts if one.problem == problem)


def save_result(folder: Path, result: JourneysResult) -> None:
    """Make a run the current one, and remove the tables of others."""
    write_over(folder / SUMMARY, msgspec.json.format(msgspec.json.encode(result)))
    remove_other_runs(folder, result.run)


def read_result(folder: str | Path) -> JourneysResult:
    """Return the result of the last complete run."""
    file = folder_of(folder) / SUMMARY
    try:
        return msgspec.json.decode(file.read_bytes(), type=JourneysResult)
    except FileNotFoundError:
        raise InvalidRequest(
            f"{folder} has no journeys yet; run `goqueue pipeline run journeys` first."
        ) from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from error


def table_path(folder: str | Path, table: str) -> str:
    """Return the URI of the Parquet folder of a table of the last complete run."""
    if table not in TABLES:
        raise InvalidRequest(f"There is no table {table!r}; give one of {', '.join(TABLES)}.")
    return (folder_of(folder) / DATA / read_result(folder).run / table).as_uri()


def remove_other_runs(folder: Path, run: str | None) -> None:
    """Remove what runs that were replaced, or killed, have left."""
    for path in (folder / DATA).glob("*"):
        if path.name != run:
            shutil.rmtree(path)
