"""The part of the report about journeys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from goqueue.spark.pipelines.journeys.results import (
    SCHEDULE_STATES,
    Account,
    JourneysResult,
    Latency,
    Slow,
)
from goqueue.spark.pipelines.plots import bars, lines, show_minute, show_time
from goqueue.spark.pipelines.tables import Cell, counted, show_duration, table

HOPS = {
    "received_stored": "received to stored",
    "stored_delivered": "stored to delivered",
    "delivered_settled": "delivered to settled",
    "stored_settled": "stored to finished",
    "due_released": "due to released",
}
PROBLEMS = {
    "never_delivered": "lost: never delivered",
    "never_settled": "lost: delivered, and nothing after that",
    "never_repeated": "lost: returned, and never delivered again",
    "never_stored": "received, and never committed",
    "never_released": "due, and never released",
    "delivered_again": "delivered again without having been returned",
    "settled_again": "settled more than once",
    "consumed_again": "consumed more than once",
    "stored_again": "stored more than once at the same offset",
    "released_again": "released more than once",
    "sent_again": "sent again, and refused as duplicates",
    "late_delivery": "delivered late",
    "late_settlement": "settled late",
    "late_release": "released late",
    "early_release": "released before they were due",
    "recovered": "recovered after a crash: details are lost",
}
_LOST = ("never_delivered", "never_settled", "never_repeated", "never_released", "never_stored")


def journey_cards(result: JourneysResult) -> list[tuple[str, str]]:
    """Return the totals for the summary of the page."""
    messages = sum(one.messages for one in result.accounts if one.group is None)
    lost = sum(result.count(problem) for problem in _LOST)
    return [(f"{messages:,}", "messages traced"), (f"{lost:,}", "lost")]


def journeys_part(result: JourneysResult) -> list[str]:
    """Return the text of this part, as paragraphs, plots and tables."""
    until = "now" if result.until_ms is None else show_time(result.until_ms)
    since = "the start of the journal" if result.from_ms is None else show_time(result.from_ms)
    return [
        "<h2>Journeys</h2>",
        f"<p>Messages received from {since} until {until}, as of {show_time(result.time_ms)} UTC: "
        f"{counted(result.events, 'event')} about ranges. A message is lost if its group went past "
        f"it and it had no event for {show_duration(result.grace_ms)}; it is late if a hop took "
        f"longer than {show_duration(result.slow_ms)}.</p>",
        "<h3>What became of messages</h3>",
        *_accounts("group", result.accounts, result.states),
        *_schedules(result),
        *_problems(result),
        *_latencies(result.latencies),
        *_slowest(result.slowest),
    ]


def _schedules(result: JourneysResult) -> list[str]:
    if not result.schedules:
        return []
    states = [
        state for state in SCHEDULE_STATES if any(state in one.states for one in result.schedules)
    ]
    return ["<h3>Scheduled messages</h3>", *_accounts(None, result.schedules, states)]


def _accounts(group: str | None, accounts: Sequence[Account], states: Sequence[str]) -> list[str]:
    """Return a table with a column for each state."""
    names = ["topic", *([group] if group else []), "messages", *map(_words, states)]
    rows: list[tuple[Cell, ...]] = [
        (
            _topic(one.tenant, one.topic),
            *([one.group] if group else []),
            one.messages,
            *(one.states.get(state) for state in states),
        )
        for one in accounts
    ]
    return [f'<div class="wide">{table(names, rows)}</div>']


def _problems(result: JourneysResult) -> list[str]:
    if not result.problem_counts:
        return ["<h3>Problems</h3>", '<p class="none">None.</p>']
    rows: list[tuple[Cell, ...]] = [
        (PROBLEMS.get(one.problem, one.problem), one.messages, one.ranges)
        for one in sorted(result.problem_counts, key=lambda one: _rank(one.problem))
    ]
    parts = ["<h3>Problems</h3>", table(("messages that were", "messages", "ranges"), rows)]
    for problem in sorted({one.problem for one in result.problems}, key=_rank):
        cells: list[tuple[Cell, ...]] = [
            (
                _topic(one.tenant, one.topic),
                one.group,
                f"{one.partition}: {one.first:,} to {one.end - 1:,}",
                one.messages,
                None if one.received_ms is None else show_time(one.received_ms),
            )
            for one in result.problems
            if one.problem == problem
        ]
        names = ("topic", "group", "partition and offsets", "messages", "received")
        title = escape(PROBLEMS.get(problem, problem))
        parts.append(f"<details><summary>{title}</summary>{table(names, cells)}</details>")
    return parts


def _latencies(latencies: Sequence[Latency]) -> list[str]:
    if not latencies:
        return []
    total = _of(latencies, "")
    parts = ["<h3>Latency by hop</h3>", _percentiles(("hop",), total)]
    hours = _of(latencies, "hour")
    for hop, name in HOPS.items():
        some = sorted(
            (one.hour_ms, one) for one in hours if one.hop == hop and one.hour_ms is not None
        )
        if len(some) > 1:
            series = {
                title: [(hour_ms, value(one)) for hour_ms, one in some]
                for title, value in (("p50", _p50), ("p99", _p99))
            }
            parts += [f"<h3>{name.capitalize()}, by hour</h3>", lines(series, what="ms")]
        elif some:
            hour_ms, one = some[0]
            shown = [("p50", one.p50_ms), ("p90", one.p90_ms), ("p99", one.p99_ms)]
            hour = show_minute(hour_ms)
            parts += [f"<h3>{name.capitalize()}, {hour}</h3>", bars(shown, what="ms")]
    has_tenants = any(one.tenant for one in latencies)
    tenant = ("tenant",) if has_tenants else ()
    of_groups = _percentiles(
        (*tenant, "topic", "group", "hop"), _of(latencies, "tenant/topic/group")
    )
    parts += ["<h3>Latency by topic and group</h3>", of_groups]
    if has_tenants:
        of_tenants = _percentiles(("tenant", "hop"), _of(latencies, "tenant"))
        parts += ["<h3>Latency by tenant</h3>", of_tenants]
    return parts


def _of(latencies: Iterable[Latency], by: str) -> list[Latency]:
    return [one for one in latencies if one.by == by]


def _p50(one: Latency) -> float:
    return one.p50_ms


def _p99(one: Latency) -> float:
    return one.p99_ms


def _percentiles(dimensions: tuple[str, ...], latencies: Sequence[Latency]) -> str:
    values: dict[str, Callable[[Latency], Cell]] = {
        "topic": lambda one: one.topic,
        "group": lambda one: one.group,
        "tenant": lambda one: one.tenant or None,
        "hop": lambda one: HOPS.get(one.hop, one.hop),
    }
    names = (*dimensions, "messages", "p50", "p90", "p99", "p99.9", "longest")
    rows: list[tuple[Cell, ...]] = [
        (
            *(values[name](one) for name in dimensions),
            one.messages,
            *map(_duration, (one.p50_ms, one.p90_ms, one.p99_ms, one.p999_ms, one.max_ms)),
        )
        for one in sorted(latencies, key=lambda one: (one.topic or "", one.group or "", _hop(one)))
    ]
    return f'<div class="wide">{table(names, rows)}</div>'


def _slowest(slowest: Sequence[Slow]) -> list[str]:
    if not slowest:
        return []
    hops = [hop for hop in HOPS if any(hop in one.hops for one in slowest)]
    names = ("topic", "group", "partition and offsets", *(HOPS[hop] for hop in hops))
    rows: list[tuple[Cell, ...]] = [
        (
            _topic(one.tenant, one.topic),
            one.group,
            f"{one.partition}: {one.first:,} to {one.end - 1:,}",
            *(_duration(one.hops[hop]) if hop in one.hops else None for hop in hops),
        )
        for one in slowest
    ]
    return ["<h3>Slowest messages</h3>", f'<div class="wide">{table(names, rows)}</div>']


def _topic(tenant: str, topic: str) -> str:
    return f"{topic} ({tenant})" if tenant else topic


def _words(state: str) -> str:
    return state.replace("_", " ")


def _duration(duration_ms: float) -> str:
    return f"{duration_ms:.3g} ms" if duration_ms < 1000 else show_duration(round(duration_ms))


def _hop(one: Latency) -> int:
    return list(HOPS).index(one.hop) if one.hop in HOPS else len(HOPS)


def _rank(problem: str) -> int:
    return list(PROBLEMS).index(problem) if problem in PROBLEMS else len(PROBLEMS)
