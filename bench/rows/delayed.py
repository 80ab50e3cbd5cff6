"""Delayed messages of the peers that have them, beside the schedules of GoQueue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.peers.known import NATS, RABBITMQ, RABBITMQ_STREAM, REDIS
from bench.peers.load import DEPTH, delay_on_peer
from bench.report import MESSAGES, MILLISECONDS, Outcome, Runs, Section
from bench.session import KAFKA, Session

NOTES = (
    f"{NATS}: a message on a subject of its own says when it is due and what subject it then goes "
    "to; nats.go, one publisher, one reader of that subject. As for GoQueue all are due in another "
    "order than they came. Its timer looks at most every 250 ms.",
    f"{RABBITMQ}: it has no delays without a plugin that is not part of it. A queue in which "
    "messages live for a while, and then go to another queue as dead letters, comes close: the "
    "delay is the same for all of a queue, so they are due in the order in which they came. The "
    "figure is therefore kinder than that of the others. Dead letters at least once.",
    "The other peers cannot. The error is what a consumer sees. One message per request, so the "
    "rate of inserts stands beside that of a Kafka producer with a grain of salt.",
)
# Peers take in their messages one by one, and all must be there before the first is due.
LEAD_TIMES = 2
CANNOT = {
    KAFKA: "cannot: it has no delayed messages",
    RABBITMQ_STREAM: "cannot: messages of a stream do not expire one by one",
    REDIS: "cannot: a stream has no delays, and a program of one's own would have to look",
}


def measure_peers(
    session: Session, *, count: int, size: int, lead_ms: int, window_ms: int
) -> dict[str, Runs]:
    """Each peer that was asked for: its runs, or why there are none."""
    lead_ms *= LEAD_TIMES
    seconds_max = (2 * lead_ms + window_ms) / 1000 + 60
    run = partial(delay_on_peer, session.tools, count=count, size=size, seconds_max=seconds_max)
    due = {
        NATS: {"delay_ms": lead_ms, "window_ms": window_ms},
        RABBITMQ: {"delay_ms": lead_ms, "depth": DEPTH},
    }
    asked = [*session.with_peers(), *session.own_client_peers({NATS, RABBITMQ, *CANNOT})]
    found = {name: Runs(name, skipped=CANNOT.get(name, "")) for name in asked}
    for turn in range(session.plan.schedule_rounds_peer):
        for name, runs in found.items():
            if not runs.skipped:
                case = partial(_run, session, name, run, due[name])
                session.run_once(f"delayed, round {turn + 1}", case, runs)
    return found


def _run(session: Session, name: str, run: Callable[..., Outcome], due: dict[str, int]) -> Outcome:
    return run(session.queue_peer(name), **due)


def add_peers(
    section: Section, peers: dict[str, Runs], *, insert: Runs, by_kafka: Runs, firing: Runs
) -> None:
    """GoQueue beside each."""
    for runs in peers.values():
        for row, mine in (("insert over HTTP", insert), ("insert by a Kafka producer", by_kafka)):
            section.add(row, mine, "insert_per_s", MESSAGES, reference=runs)
        for metric, what in (("seen_p50_ms", "p50"), ("seen_p99_ms", "p99")):
            row = f"firing all: error as seen, {what}"
            section.add(row, firing, metric, MILLISECONDS, reference=runs)
