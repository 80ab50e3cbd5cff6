"""From producer to consumer at a steady rate."""

from __future__ import annotations

from functools import partial

from bench.load import end_to_end
from bench.peers.load import end_to_end_of_peer
from bench.plan import PARTITIONS
from bench.processes import LoadFailed
from bench.report import MILLISECONDS, Outcome, at_most, times_at_most
from bench.rows.beside import PROMISES, add_beside
from bench.session import EVERY, KAFKA, NONE, Case, Session
from bench.systems import Unavailable
from bench.topics import fresh_topic

SLOW, FAST = 1_000, 20_000
# At the fast pace a linger of 0 makes nearly every message a request of its own, a lingering
# producer shows what batching takes off.
PACES = ((SLOW, 0), (FAST, 0), (FAST, 1))
# What the clients of peers say when messages are seconds late.
BEHIND = "it does not keep this pace"


def measure(session: Session) -> None:
    """librdkafka in C on both sides; peers by their own clients."""
    section = session.section("End to end, 1 KB")
    section.notes += [
        "Counted from the moment a message was due, so a stalled producer cannot hide a delay. "
        "At 20 k/s four messages are due together, every 200 µs.",
        "GoQueue and Apache Kafka: librdkafka in C. RabbitMQ: librabbitmq, one ack for every ten "
        "messages. NATS: nats.go, a pull consumer without acks. Redis: hiredis, XREAD that waits. "
        "Publishers do not wait for an acknowledgement before the next message; all are counted.",
        PROMISES,
    ]
    for rate, linger_ms in PACES:
        pace = f"{rate // 1000} k msg/s, linger {linger_ms} ms"
        names = session.with_peers(EVERY, NONE)
        cases: dict[str, Case] = {
            name: partial(_run, session, name, rate, linger_ms) for name in names
        }
        # Only a client that batches can linger.
        own = session.own_client_peers() if linger_ms == 0 else []
        cases |= {name: partial(_run_peer, session, name, rate) for name in own}
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
        for metric, detail in (("p50_ms", ", p50"), ("p99_ms", ", p99")):
            add_beside(section, pace, runs, metric, MILLISECONDS, peers=own, detail=detail)


def _run(session: Session, name: str, rate: int, linger_ms: int) -> Outcome:
    system, seconds = session.system(name), session.plan.end_to_end_seconds
    with fresh_topic(system, PARTITIONS) as topic:
        return end_to_end(
            session.tools, system, topic, rate=rate, linger_ms=linger_ms, seconds=seconds
        )


def _run_peer(session: Session, name: str, rate: int) -> Outcome:
    peer, seconds = session.queue_peer(name), session.plan.end_to_end_seconds
    try:
        return end_to_end_of_peer(session.tools, peer, rate=rate, seconds=seconds)
    except LoadFailed as error:
        if BEHIND in str(error):
            raise Unavailable(BEHIND) from None
        raise
