"""From producer to consumer at a steady rate."""

from __future__ import annotations

from functools import partial

from bench.load import end_to_end
from bench.plan import PARTITIONS
from bench.report import MILLISECONDS, Outcome, at_most, times_at_most
from bench.session import EVERY, KAFKA, NONE, Session
from bench.topics import fresh_topic

SLOW, FAST = 1_000, 20_000
# At the fast pace a linger of 0 makes nearly every message a request of its own, a lingering
# producer shows what batching takes off.
PACES = ((SLOW, 0), (FAST, 0), (FAST, 1))


def measure(session: Session) -> None:
    """librdkafka in C on both sides."""
    section = session.section("End to end, 1 KB, librdkafka in C")
    section.notes.append(
        "Counted from the moment a message was due, so a stalled producer cannot hide a delay. "
        "At 20 k/s four messages are due together, every 200 µs."
    )
    for rate, linger_ms in PACES:
        pace = f"{rate // 1000} k msg/s, linger {linger_ms} ms"
        names = session.with_peers(EVERY, NONE)
        cases = {name: partial(_run, session, name, rate, linger_ms) for name in names}
        runs = session.in_turns(f"end to end at {pace}", cases)
        for name in (EVERY, NONE):
            section.add(f"{pace}, {name}, p50", runs[name], "p50_ms", MILLISECONDS)
            row = f"{pace}, {name}, p99"
            if rate == SLOW:
                section.add(row, runs[name], "p99_ms", MILLISECONDS, target=at_most(5.0, "5 ms"))
            section.add(row, runs[name], "p99_ms", MILLISECONDS, target=at_most(2.0, "2 ms", "aim"))
            if KAFKA in runs:
                section.add(
                    row,
                    runs[name],
                    "p99_ms",
                    MILLISECONDS,
                    reference=runs[KAFKA],
                    target=times_at_most(1.0),
                )


def _run(session: Session, name: str, rate: int, linger_ms: int) -> Outcome:
    system, seconds = session.system(name), session.plan.end_to_end_seconds
    with fresh_topic(system, PARTITIONS) as topic:
        return end_to_end(
            session.tools, system, topic, rate=rate, linger_ms=linger_ms, seconds=seconds
        )
