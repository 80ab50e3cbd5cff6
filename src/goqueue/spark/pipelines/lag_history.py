"""The history of group lag, and its forecast.

A run adds one small file with the lag of every group in every partition. It needs no Spark, so it
can run every minute; `lag_history` is the Spark table of all runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from goqueue.client import LogClient
from goqueue.client.groups import SHARE
from goqueue.model.errors import InvalidRequest, UnknownGroup
from goqueue.spark.pipelines.folders import folder_of, write_new

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("ms", tz="UTC")),
        pa.field("group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("committed", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("lag", pa.int64()),
    ]
)
_SUFFIX = ".parquet"


class LagSample(NamedTuple):
    """The position of a group in one partition at one moment."""

    time_ms: int
    group: str
    topic: str
    partition: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of the lag of a group in one partition, at the current rates."""

    last: LagSample
    samples: int
    produced_per_s: float | None  # None: one sample gives no rate
    consumed_per_s: float | None
    lag_per_s: float | None
    gone_at_ms: int | None  # when the lag is gone; now, if there is none
    bound_at_ms: int | None  # when it reaches the bound; None: never at these rates


def sample_lag(
    client: LogClient, *, time_ms: int, groups: Sequence[str] | None = None
) -> list[LagSample]:
    """Return the lag of these groups, or of all.

    `committed` is where a group continues: a partition without a commit counts from its log start.
    `end` is the offset after the last record, without markers and aborted records.
    """
    listed = [] if groups else client.groups.list_all()
    names = groups or [each.name for each in listed if each.kind != SHARE]
    samples = []
    for name in names:
        try:
            lags = client.groups.lag(name)
        except UnknownGroup:
            if groups:
                raise
            continue  # The group was deleted meanwhile.
        samples += [
            LagSample(
                time_ms,
                name,
                one.partition.topic,
                one.partition.partition,
                one.position,
                one.records_end,
            )
            for one in lags
            if one.position is not None and one.records_end is not None
        ]
    return samples


def append_lag(folder: str | Path, samples: Sequence[LagSample]) -> Path | None:
    """Add the samples of one run to the history; without samples there is no file."""
    if not samples:
        return None
    columns = {
        "time": [one.time_ms for one in samples],
        "group": [one.group for one in samples],
        "topic": [one.topic for one in samples],
        "partition": [one.partition for one in samples],
        "committed": [one.committed for one in samples],
        "end": [one.end for one in samples],
        "lag": [one.lag for one in samples],
    }
    data = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pydict(columns, SCHEMA), data, compression="zstd")
    name = f"{samples[0].time_ms:015d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
    file = folder_of(folder) / name
    write_new(file, data.getvalue().to_pybytes())
    return file


def read_lag(folder: str | Path, *, from_ms: int = 0) -> list[LagSample]:
    """Return the history since a time, oldest first. File names show which are too old."""
    files = _files(folder_of(folder), from_ms)
    samples = []
    for file in files:
        table = pq.read_table(file, schema=SCHEMA)
        columns = [table["time"].cast(pa.int64()), *(table[name] for name in SCHEMA.names[1:-1])]
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        samples += [LagSample(*row) for row in rows]
    return sorted(one for one in samples if one.time_ms >= from_ms)


def lag_history(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return the whole history as a table."""
    path = folder_of(folder)
    files = _files(path, 0)
    if not files:
        raise InvalidRequest(f"{path} holds no lag yet; run `goqueue pipeline run lag` first.")
    return spark.read.parquet(*map(str, files))


def forecast(samples: Iterable[LagSample], *, bound: int | None = None) -> list[Forecast]:
    """Return rates over the samples, and the forecast, for each group and partition."""
    by_partition: dict[tuple[str, str, int], list[LagSample]] = {}
    for one in samples:
        by_partition.setdefault((one.group, one.topic, one.partition), []).append(one)
    return [_forecast(sorted(some), bound) for _, some in sorted(by_partition.items())]


def _forecast(samples: Sequence[LagSample], bound: int | None) -> Forecast:
    last = samples[-1]
    times = [one.time_ms / 1000 for one in samples]
    produced = slope(times, [one.end for one in samples])
    consumed = slope(times, [one.committed for one in samples])
    rate = slope(times, [one.lag for one in samples])
    return Forecast(
        last=last,
        samples=len(samples),
        produced_per_s=produced,
        consumed_per_s=consumed,
        lag_per_s=rate,
        gone_at_ms=_reached(last, 0, rate),
        bound_at_ms=None if bound is None else _reached(last, bound, rate),
    )


def slope(times: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the slope of the least-squares line; None if all times are the same."""
    if len(times) < 2:
        return None
    # Shifted towards zero, so that squares of large offsets and times keep their precision.
    moments = [time - times[0] for time in times]
    heights = [value - values[0] for value in values]
    moment_mean, height_mean = sum(moments) / len(moments), sum(heights) / len(heights)
    spread = sum((moment - moment_mean) ** 2 for moment in moments)
    if spread == 0:
        return None
    return (
        sum((m - moment_mean) * (h - height_mean) for m, h in zip(moments, heights, strict=True))
        / spread
    )


def _reached(last: LagSample, lag: int, rate: float | None) -> int | None:
    """Return when the lag will be `lag`: now if it is already past it, None if it moves away."""
    is_there = last.lag <= 0 if lag == 0 else last.lag >= lag
    if is_there:
        return last.time_ms
    distance = lag - last.lag
    if rate is None or rate == 0 or (distance > 0) != (rate > 0):
        return None
    return last.time_ms + round(distance / rate * 1000)


def _files(folder: Path, from_ms: int) -> list[Path]:
    found = []
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        time, _, _ = file.name.partition("-")
        if time.isdigit() and int(time) >= from_ms:
            found.append(file)
    return found
