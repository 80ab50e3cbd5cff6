"""The report: one HTML page of archives, lag, dead letters and journeys.

It reads only the output of the other pipelines, so it needs neither Spark nor a broker. All text
from users is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from goqueue.spark.pipelines.archive_reading import open_archive
from goqueue.spark.pipelines.copy_progress import all_steps, copied
from goqueue.spark.pipelines.folders import folder_of, write_over
from goqueue.spark.pipelines.journeys.page import journey_cards, journeys_part
from goqueue.spark.pipelines.journeys.results import JourneysResult, read_result
from goqueue.spark.pipelines.lag_history import Forecast, LagSample, forecast, read_lag
from goqueue.spark.pipelines.letters import Triage, read_triages
from goqueue.spark.pipelines.manifests import Archive
from goqueue.spark.pipelines.plots import (
    bars,
    lines,
    show_count,
    show_minute,
    show_size,
    show_time,
)
from goqueue.spark.pipelines.replaying import PLAN, REPLAYS, ReplayPlan
from goqueue.spark.pipelines.report_summary import publish_report, summary_of
from goqueue.spark.pipelines.tables import Cell, counted, show_duration, table

if TYPE_CHECKING:
    from goqueue.client.http import Client

LINES_MAX = 8  # per plot; those with the largest lag
RUNS_MAX = 200  # per plot; the newest
_PERCENTILES = (50, 90, 99, 100)


def write_report(
    file: str | Path,
    *,
    now_ms: int,
    archives: Sequence[str | Path] = (),
    lag: str | Path | None = None,
    dead_letters: str | Path | None = None,
    journeys: str | Path | None = None,
    lag_bound: int | None = None,
    client: Client | None = None,
    name: str = "",
) -> Path:
    """Write the page; an existing page is replaced.

    With a client the broker gets its texts and tables too, as the newest report of this name. By
    default that is the name of the file.
    """
    held = [open_archive(one) for one in archives]
    samples = read_lag(lag) if lag is not None else []
    triages = read_triages(dead_letters) if dead_letters is not None else []
    audits = [read_result(journeys)] if journeys is not None else []
    page = report_page(held, samples, triages, audits, now_ms=now_ms, lag_bound=lag_bound)
    path = Path(file).expanduser().absolute()
    folder_of(path.parent)
    write_over(path, page.encode())
    if client is not None:
        publish_report(client, summary_of(page, name=name or path.stem, now_ms=now_ms))
    return path


def report_page(
    archives: Sequence[Archive],
    samples: Sequence[LagSample],
    triages: Sequence[Triage],
    audits: Sequence[JourneysResult] = (),
    *,
    now_ms: int,
    lag_bound: int | None = None,
) -> str:
    """Return the text of the page."""
    parts = [f'<h1>GoQueue pipelines</h1><p class="none">{show_time(now_ms)} UTC</p>']
    if archives or samples or triages or audits:
        parts.append(_cards(archives, samples, triages, audits))
    for held in archives:
        parts += _archive_part(held)
    if samples:
        parts += _lag_part(samples, forecast(samples, bound=lag_bound))
    for triage in triages:
        parts += _dead_letter_part(triage)
    for audit in audits:
        parts += journeys_part(audit)
    if len(parts) == 1:
        parts.append("<p>Nothing was named to report on.</p>")
    return _PAGE.replace("{body}", "\n".join(parts))


# Summary


def _cards(
    archives: Sequence[Archive],
    samples: Sequence[LagSample],
    triages: Sequence[Triage],
    audits: Sequence[JourneysResult],
) -> str:
    """Return the totals of the page, in large type."""
    cards: list[tuple[str, str]] = []
    if archives:
        cards.append((f"{sum(one.digest.records for one in archives):,}", "records archived"))
        size = sum(file.bytes for one in archives for run in one.live for file in run.files)
        cards.append((show_size(size), "on disk"))
        if losses := sum(len(run.losses) for one in archives for run in one.manifests):
            cards.append((f"{losses:,}", "loss" if losses == 1 else "losses"))
        if replays := [row for one in archives for row in _replays(one)]:
            cards.append((f"{sum(records for _, _, records in replays):,}", "records replayed"))
    if samples:
        cards.append((f"{sum(lag_now(samples).values()):,}", "records behind"))
    if triages:
        letters = sum(map(_letters, triages))
        cards.append((f"{letters:,}", "dead letter" if letters == 1 else "dead letters"))
    cards += [card for audit in audits for card in journey_cards(audit)]
    shown = "".join(f"<div><b>{escape(sum_)}</b>{escape(what)}</div>" for sum_, what in cards)
    return f'<div class="cards">{shown}</div>'


def lag_now(samples: Sequence[LagSample]) -> dict[tuple[str, str, int], int]:
    """Return the newest lag of each group in each partition."""
    ordered = sorted(samples, key=lambda one: one.time_ms)
    return {(one.group, one.topic, one.partition): one.lag for one in ordered}


def _letters(triage: Triage) -> int:
    """Count the letters. Every table contains all letters, unless it was truncated."""
    counts = (sum(row.letters for row in rows) for rows in triage.tables.values())
    return max(counts, default=0)


# Archives


def _archive_part(held: Archive) -> list[str]:
    manifests = held.manifests
    files = [file for one in held.live for file in one.files]
    by_run = [(show_minute(one.committed_at_ms), float(one.digest.records)) for one in manifests]
    return [
        f"<h2>Archive {escape(held.folder.name)}</h2>",
        f'<p class="none">{escape(str(held.folder))}</p>',
        f"<p>{counted(held.digest.records, 'record')} in {counted(len(files), 'file')}, "
        f"{show_size(sum(file.bytes for file in files))}, {counted(len(manifests), 'run')}.</p>",
        "<h3>Records per run</h3>",
        bars(by_run[-RUNS_MAX:], what="records"),
        "<h3>By topic</h3>",
        table(("topic", "records", "size", "from", "to"), _topic_rows(held)),
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
                    show_size(sum(file.bytes for file in files)),
                    show_time(min(file.timestamp_ms_min for file in files)),
                    show_time(max(file.timestamp_ms_max for file in files)),
                )
            )
    return rows


def _latency_part(held: Archive) -> list[str]:
    counts = _sums(piece.latencies for piece in held.pieces)
    if not sum(counts):
        return []
    used = [number for number, count in enumerate(counts) if count]
    # One empty bucket on the left shows that nothing was faster.
    shown = [
        (f"< {show_duration(1 << number)}", float(counts[number]))
        for number in range(max(used[0] - 1, 0), used[-1] + 1)
    ]
    rows = [(f"{p} %", f"< {show_duration(percentile_ms(counts, p))}") for p in _PERCENTILES]
    return [
        "<h3>From timestamp to archive</h3>",
        bars(shown, what="records"),
        table(("records", "latency"), rows),
    ]


def _losses_part(held: Archive) -> list[str]:
    rows: list[tuple[Cell, ...]] = [
        (show_time(one.committed_at_ms), loss) for one in held.manifests for loss in one.losses
    ]
    return ["<h3>Lost before it was archived</h3>", table(("run", "loss"), rows)] if rows else []


def _replay_part(held: Archive) -> list[str]:
    rows: list[tuple[Cell, ...]] = list(_replays(held))
    return ["<h3>Replays</h3>", table(("run", "into", "records"), rows)] if rows else []


def _replays(held: Archive) -> list[tuple[str, str, int]]:
    """Return name, target and size of each replay of an archive."""
    found = []
    for folder in sorted((held.folder / REPLAYS).glob("*")):
        if (folder / PLAN).exists():
            plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=ReplayPlan)
            records = copied(all_steps(folder).values()).records
            found.append((folder.name, plan.target, records))
    return found


def percentile_ms(counts: Sequence[int], percent: float) -> int:
    """Return the bound below which this share of the records is; bucket sizes double."""
    wanted, seen = sum(counts) * percent / 100, 0
    for number, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return 1 << number
    return 1 << len(counts)


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
            one.last.group,
            f"{one.last.topic}/{one.last.partition}",
            one.last.lag,
            _rate(one.produced_per_s),
            _rate(one.consumed_per_s),
            None if one.gone_at_ms is None else show_time(one.gone_at_ms),
            None if one.bound_at_ms is None else show_time(one.bound_at_ms),
        )
        for one in sorted(forecasts, key=lambda each: -each.last.lag)
    ]
    names = ("group", "partition", "lag", "in /s", "out /s", "gone at", "bound at")
    return ["<h2>Lag</h2>", lines(lag_series(samples), what="records"), table(names, rows)]


def lag_series(samples: Sequence[LagSample]) -> Mapping[str, list[tuple[int, float]]]:
    """Plot the lag of each group in each topic over time, for the largest lags."""
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
        parts += [f"<h3>By {escape(by)}</h3>", table((by, "letters", "first", "last"), cells)]
    return parts


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else show_time(time_ms)


# The page


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>GoQueue pipelines</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root{color-scheme:light dark;
--ink:#111827;--soft:#6b7280;--line:#e5e7eb;--page:#fff;--card:#f9fafb}
@media(prefers-color-scheme:dark){
:root{--ink:#e5e7eb;--soft:#9ca3af;--line:#374151;--page:#111827;--card:#1f2937}}
body{font:15px/1.5 system-ui,sans-serif;max-width:800px;margin:2rem auto;padding:0 1rem;
color:var(--ink);background:var(--page)}
h1{margin-bottom:0}
h1+p,h2+p{margin-top:0}
h2{margin:3rem 0 .2rem;overflow-wrap:anywhere}
h3{margin:1.8rem 0 .4rem;font-size:1rem}
svg{width:100%;height:auto}
svg text{font-size:11px;fill:var(--soft)}
.grid{stroke:var(--line)}
table{border-collapse:collapse;width:100%;font-size:14px}
td,th{text-align:left;padding:.3rem 1rem .3rem 0;border-bottom:1px solid var(--line);
overflow-wrap:anywhere}
th{font-weight:600;color:var(--soft)}
.number{text-align:right;font-variant-numeric:tabular-nums;width:6rem;padding-right:2rem}
.none{color:var(--soft);overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.5rem,1fr));gap:.8rem;
margin:1.5rem 0}
.cards div{background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:.6rem .9rem;color:var(--soft);font-size:13px}
.cards b{display:block;font-size:1.4rem;color:var(--ink);font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}
.wide td,.wide th{white-space:nowrap;overflow-wrap:normal}
.wide .number{width:auto;padding-right:1rem}
details{margin:.6rem 0}
summary{cursor:pointer}
.legend{font-size:13px;color:var(--soft)}
.legend span{margin-right:1rem}
.legend i{display:inline-block;width:.7rem;height:.7rem;border-radius:2px;margin-right:.35rem}
</style></head><body>
{body}
</body></html>
"""
