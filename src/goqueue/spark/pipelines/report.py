"""The report: one HTML page of what was archived, how late, which letters died, and the lag.

It reads what the other pipelines have written and nothing else, so it needs neither Spark nor a
broker. All that comes from users is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import msgspec

from goqueue.spark.pipelines.archive_reading import open_archive
from goqueue.spark.pipelines.copy_progress import all_steps, copied
from goqueue.spark.pipelines.folders import folder_of, write_over
from goqueue.spark.pipelines.lag_history import Forecast, LagSample, forecast, read_lag
from goqueue.spark.pipelines.letters import Triage, read_triages
from goqueue.spark.pipelines.manifests import Archive
from goqueue.spark.pipelines.plots import bars, lines, show_count, show_time
from goqueue.spark.pipelines.replaying import PLAN, REPLAYS, ReplayPlan

LINES_MAX = 8  # of a plot; those with most lag
ROWS_MAX = 50  # of a table on the page
_PERCENTILES = (50, 90, 99, 100)

Cell = str | int | float | None


def write_report(
    file: str | Path,
    *,
    now_ms: int,
    archives: Sequence[str | Path] = (),
    lag: str | Path | None = None,
    dead_letters: str | Path | None = None,
    lag_bound: int | None = None,
) -> Path:
    """Write the page; a page of this name is replaced."""
    held = [open_archive(one) for one in archives]
    samples = read_lag(lag) if lag is not None else []
    triages = read_triages(dead_letters) if dead_letters is not None else []
    page = report_page(held, samples, triages, now_ms=now_ms, lag_bound=lag_bound)
    place = Path(file).expanduser().absolute()
    folder_of(place.parent)
    write_over(place, page.encode())
    return place


def report_page(
    archives: Sequence[Archive],
    samples: Sequence[LagSample],
    triages: Sequence[Triage],
    *,
    now_ms: int,
    lag_bound: int | None = None,
) -> str:
    """The text of the page."""
    parts = [f"<h1>GoQueue pipelines</h1><p>{show_time(now_ms)} UTC</p>"]
    for held in archives:
        parts += _archive_part(held)
    if samples:
        parts += _lag_part(samples, forecast(samples, bound=lag_bound))
    for triage in triages:
        parts += _dead_letter_part(triage)
    if len(parts) == 1:
        parts.append("<p>Nothing was named to report on.</p>")
    return _PAGE.replace("{body}", "\n".join(parts))


# Archives


def _archive_part(held: Archive) -> list[str]:
    manifests = held.manifests
    files = [file for one in held.live for file in one.files]
    size = sum(file.bytes for file in files)
    by_run = [(show_time(one.committed_at_ms), float(one.digest.records)) for one in manifests]
    return [
        f"<h2>Archive {escape(str(held.folder))}</h2>",
        f"<p>{held.digest.records:,} records in {len(files):,} files, {show_count(size)}B, "
        f"{len(manifests):,} runs.</p>",
        "<h3>Records per run</h3>",
        bars(by_run[-200:], what="records"),
        "<h3>By topic</h3>",
        _table(("topic", "records", "bytes", "from", "to"), _topic_rows(held)),
        *_latency_part(held),
        *_losses_part(held),
        *_replay_part(held),
    ]


def _topic_rows(held: Archive) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for topic in sorted({piece.topic for piece in held.pieces}):
        pieces = [piece for piece in held.pieces if piece.topic == topic]
        files = [file for piece in pieces for file in piece.files]
        if files:
            rows.append(
                (
                    topic,
                    sum(piece.digest.records for piece in pieces),
                    sum(file.bytes for file in files),
                    show_time(min(file.timestamp_ms_min for file in files)),
                    show_time(max(file.timestamp_ms_max for file in files)),
                )
            )
    return rows


def _latency_part(held: Archive) -> list[str]:
    counts = _sums(piece.latencies for piece in held.pieces)
    if not sum(counts):
        return []
    last = max(number for number, count in enumerate(counts) if count)
    shown = [(f"<{show_duration(1 << n)}", float(count)) for n, count in enumerate(counts)]
    rows = [(f"{p} %", f"< {show_duration(percentile_ms(counts, p))}") for p in _PERCENTILES]
    return [
        "<h3>From timestamp to archive</h3>",
        bars(shown[: last + 1], what="records"),
        _table(("records", "latency"), rows),
    ]


def _losses_part(held: Archive) -> list[str]:
    rows: list[tuple[Cell, ...]] = [
        (show_time(one.committed_at_ms), loss) for one in held.manifests for loss in one.losses
    ]
    return ["<h3>Lost before it was archived</h3>", _table(("run", "loss"), rows)] if rows else []


def _replay_part(held: Archive) -> list[str]:
    rows: list[tuple[Cell, ...]] = []
    for folder in sorted((held.folder / REPLAYS).glob("*")):
        if (folder / PLAN).exists():
            plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=ReplayPlan)
            rows.append((folder.name, plan.target, copied(all_steps(folder).values()).records))
    return ["<h3>Replays</h3>", _table(("run", "into", "records"), rows)] if rows else []


def percentile_ms(counts: Sequence[int], percent: float) -> int:
    """The bound below which so many of the records are; buckets double in size."""
    wanted, seen = sum(counts) * percent / 100, 0
    for number, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return 1 << number
    return 1 << len(counts)


def show_duration(duration_ms: int) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if duration_ms >= size:
            return f"{duration_ms / size:.3g} {unit}"
    return f"{duration_ms} ms"


def _sums(rows: Iterable[Sequence[int]]) -> list[int]:
    found: list[int] = []
    for row in rows:
        found += [0] * (len(row) - len(found))
        for number, count in enumerate(row):
            found[number] += count
    return found


# Lag and dead letters


def _lag_part(samples: Sequence[LagSample], forecasts: Sequence[Forecast]) -> list[str]:
    rows: list[tuple[Cell, ...]] = [
        (
            one.group,
            f"{one.topic}/{one.partition}",
            one.lag,
            _rate(one.produced_per_s),
            _rate(one.consumed_per_s),
            None if one.gone_at_ms is None else show_time(one.gone_at_ms),
            None if one.bound_at_ms is None else show_time(one.bound_at_ms),
        )
        for one in sorted(forecasts, key=lambda each: -each.lag)
    ]
    names = ("group", "partition", "lag", "in /s", "out /s", "gone at", "bound at")
    return ["<h2>Lag</h2>", lines(lag_series(samples), what="records"), _table(names, rows)]


def lag_series(samples: Sequence[LagSample]) -> Mapping[str, list[tuple[int, float]]]:
    """The lag of each group in each topic over time, of those that are furthest behind."""
    sums: dict[tuple[str, str], dict[int, float]] = {}
    for one in samples:
        moments = sums.setdefault((one.group, one.topic), {})
        moments[one.time_ms] = moments.get(one.time_ms, 0) + one.lag
    worst = sorted(sums, key=lambda name: -max(sums[name].values()))[:LINES_MAX]
    return {f"{group} in {topic}": sorted(sums[group, topic].items()) for group, topic in worst}


def _rate(rate: float | None) -> str | None:
    return None if rate is None else show_count(rate)


def _dead_letter_part(triage: Triage) -> list[str]:
    parts = [
        f"<h2>Dead letters of {escape(triage.topic)}</h2>",
        f"<p>As of {show_time(triage.time_ms)} UTC.</p>",
    ]
    for by, rows in triage.tables.items():
        if by == "hour":
            shown = sorted((row.what[:13], float(row.letters)) for row in rows)
            parts += ["<h3>By hour</h3>", bars(shown, what="letters")]
            continue
        cells: list[tuple[Cell, ...]] = [
            (row.what, row.letters, _moment(row.first_ms), _moment(row.last_ms)) for row in rows
        ]
        parts += [f"<h3>By {escape(by)}</h3>", _table((by, "letters", "first", "last"), cells)]
    return parts


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else show_time(time_ms)


# The page


def _table(names: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:ROWS_MAX])
    more = len(rows) - ROWS_MAX
    note = f'<p class="none">and {more:,} more</p>' if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(value: Cell) -> str:
    if isinstance(value, int | float):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{escape('-' if value is None else value)}</td>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>GoQueue pipelines</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:800px;margin:2rem auto;padding:0 1rem;color:#111}
h2{margin-top:2.5rem;border-bottom:1px solid #ddd;overflow-wrap:anywhere}
svg{width:100%;height:auto}
svg text{font-size:11px;fill:#555}
.grid{stroke:#e5e7eb}
table{border-collapse:collapse;width:100%;font-size:14px}
td,th{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid #eee}
td,th{overflow-wrap:anywhere}
.number{font-variant-numeric:tabular-nums}
.none{color:#777}
.legend span{margin-right:1rem}
.legend i{display:inline-block;width:.7rem;height:.7rem;margin-right:.3rem}
</style></head><body>
{body}
</body></html>
"""
