"""Draws a journey as a timeline, for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer
from msgspec import UNSET

from goqueue.cli.moments import show_time
from goqueue.cli.output import plain
from goqueue.client.http import Journey, JourneyEntry, JourneyMessage, JourneyStanding

_GOOD, _DOUBTFUL, _BAD, _NEUTRAL = "green", "yellow", "red", "cyan"
_COLORS = {
    "stored": _GOOD,
    "acked": _GOOD,
    "consumed": _GOOD,
    "nacked": _DOUBTFUL,
    "lease_expired": _DOUBTFUL,
    "returned": _DOUBTFUL,
    "waiting": _DOUBTFUL,
    "in_flight": _DOUBTFUL,
    "skipped": _DOUBTFUL,
    "deduplicated": _DOUBTFUL,
    "recovered": _DOUBTFUL,
    "rejected": _BAD,
    "dead_lettered": _BAD,
    "dead": _BAD,
    "expired": _BAD,
    "retired": _BAD,
}
_KIND_WIDTH = 13  # of the longest word
_TIME_OF_DAY = slice(11, 23)
_AFTER_WIDTH = 9
_RULE_WIDTH = 60  # in a pipe

_Part = tuple[str, str]  # a text and its color; none if that is empty


def draw(journey: Journey, *, width: int | None) -> str:
    """Draw a journey as lines; in colors and cut to a width if one is given."""
    lines = [*_head(journey), *_timeline(journey.entries, width or _RULE_WIDTH)]
    return "".join(_line(parts, width) + "\n" for parts in lines)


def name_of(message: JourneyMessage) -> str:
    """The name of a message: its id, or its schedule id."""
    if message.id is not UNSET:
        return message.id
    return f"schedule {message.schedule_id} for {message.topic}"


def summary_of(outcomes: Sequence[JourneyStanding]) -> str:
    """How a message stands, on one line."""
    return ", ".join(f"{plain(one.group)} {one.outcome}".strip() for one in outcomes)


def _head(journey: Journey) -> Iterator[list[_Part]]:
    yield [(name_of(journey.message), "bold")]
    for one in journey.outcomes:
        details = [show_time(one.time)]
        if one.attempts:
            details.append("1 delivery" if one.attempts == 1 else f"{one.attempts} deliveries")
        if one.consumer:
            details.append(f"by {plain(one.consumer)}")
        if one.reason:
            details.append(plain(one.reason))
        outcome = one.outcome.replace("_", " ")
        group = f"{plain(one.group)} " if one.group else ""
        yield [("  " + group, ""), (outcome, _color(one.outcome)), (f"  {', '.join(details)}", "")]
    if not journey.outcomes:
        yield [("  Nothing is recorded of it.", "")]
    if not journey.complete:
        yield [("  Some of it was lost in a crash.", _DOUBTFUL)]


def _timeline(entries: Sequence[JourneyEntry], width: int) -> Iterator[list[_Part]]:
    message: JourneyMessage | None = None
    day = ""
    for entry in entries:
        time = show_time(entry.time)
        if entry.message != message or time[:10] != day:
            message, day = entry.message, time[:10]
            title = f"-- {name_of(message)}  {day} "
            yield []
            yield [(title.ljust(width, "-"), "dim")]
        after = "" if entry is entries[0] else f"+{show_elapsed(entry.after_ms)}"
        kind = entry.kind.replace("_", " ")
        yield [
            (f"{time[_TIME_OF_DAY]} ", ""),
            (after.rjust(_AFTER_WIDTH), "dim"),
            ("  ", ""),
            (kind.ljust(_KIND_WIDTH), _color(entry.kind)),
            (f"  {', '.join(_details(entry))}", ""),
        ]


def _details(entry: JourneyEntry) -> Iterator[str]:
    if entry.group:
        yield plain(entry.group)
    if entry.consumer:
        yield f"consumer {plain(entry.consumer)}"
    if entry.attempt:
        yield f"attempt {entry.attempt}"
    who = [one for one in (entry.principal, entry.client_id) if one]
    if who:
        yield f"from {plain(' '.join(who))}"
    if entry.listener:
        yield f"over {plain(entry.listener)}"
    if entry.replicas > 1:
        yield f"on {entry.replicas} replicas"
    if entry.reason:
        yield plain(entry.reason)
    if entry.due:
        yield f"due {show_time(entry.due)[_TIME_OF_DAY]}"
    if entry.node >= 0:
        yield f"node {entry.node}"
    if entry.recovered:
        yield "recovered after a crash"


def show_elapsed(elapsed_ms: int) -> str:
    """A time between two events, with the unit that fits."""
    if elapsed_ms < 1000:
        return f"{elapsed_ms} ms"
    seconds = elapsed_ms / 1000
    if seconds < 120:
        return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _color(kind: str) -> str:
    return _COLORS.get(kind, _NEUTRAL)


def _line(parts: Sequence[_Part], width: int | None) -> str:
    if width is None:
        return "".join(text for text, _ in parts).rstrip()
    shown, room = [], width
    for text, color in parts:
        if len(text) > room:
            text = text[: max(0, room - 1)] + "…" if room else ""
        room -= len(text)
        shown.append(_styled(text, color))
    return "".join(shown).rstrip()


def _styled(text: str, color: str) -> str:
    if not text or not color:
        return text
    if color == "bold":
        return typer.style(text, bold=True)
    return typer.style(text, dim=True) if color == "dim" else typer.style(text, fg=color)
