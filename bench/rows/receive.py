"""Queue groups over HTTP: the way of one message from its publisher to a consumer.

A row of its own, so that no peer is running and nothing large is on its way to the disk.
"""

from __future__ import annotations

from functools import partial

from bench import limits
from bench.http_load import end_to_end
from bench.plan import PARTITIONS
from bench.report import MILLISECONDS, Outcome, at_most
from bench.rows.queues import CONSUMERS, new_group
from bench.session import EVERY, NONE, Case, Session
from bench.topics import fresh_topic

RATE = 1_000
SYNC = "an append and a sync at that pace"


def measure(session: Session) -> None:
    """At a steady pace, with and without a sync before the answer."""
    section = session.section(f"Queue group end to end over HTTP, 1 KB, {RATE // 1000} k msg/s")
    section.notes.append(
        f"One message per publish request; {CONSUMERS} consumers wait with a long poll. Counted "
        "from the moment a message was due, so a stalled publisher cannot hide a delay."
    )
    names = (EVERY, NONE)
    cases: dict[str, Case] = {name: partial(_run_latency, session, name) for name in names}
    runs = session.in_turns("queues, end to end", cases | {SYNC: lambda: _run_sync(session)})
    for name in names:
        reference = runs[SYNC] if name == EVERY else None
        row = f"publish to receive, {name}, p50"
        section.add(row, runs[name], "p50_ms", MILLISECONDS, reference=reference)
        row = f"publish to receive, {name}, p99"
        for target in (at_most(5.0, "5 ms"), at_most(2.0, "2 ms", "aim")):
            section.add(row, runs[name], "p99_ms", MILLISECONDS, reference=reference, target=target)


def _run_latency(session: Session, name: str) -> Outcome:
    server = session.server(name)
    with fresh_topic(server, PARTITIONS) as topic:
        return end_to_end(
            session.tools,
            server,
            topic,
            new_group(server),
            consumers=CONSUMERS,
            rate=RATE,
            seconds=session.plan.end_to_end_seconds,
        )


def _run_sync(session: Session) -> Outcome:
    """What the disk alone asks in the same minute."""
    seconds = session.plan.end_to_end_seconds
    p50, p99 = limits.synced_at_pace_ms(session.work, RATE, seconds)
    return Outcome({"p50_ms": p50, "p99_ms": p99})
