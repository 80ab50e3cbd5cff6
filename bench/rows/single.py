"""One record per request from 16 connections: what a request costs."""

from __future__ import annotations

from functools import partial

from bench.load import raw_produce
from bench.plan import PARTITIONS
from bench.report import MICROSECONDS, REQUESTS, Outcome, at_least, times_at_least
from bench.session import ECHO, EVERY, KAFKA, NONE, SINK, Session
from bench.topics import fresh_topic

CONNECTIONS = 16


def measure(session: Session) -> None:
    """One outstanding request per connection, then eight."""
    section = session.section("One record of 1 KB per request, 16 connections")
    section.notes += [
        "Prebuilt Produce v7 requests from C; every answer's error code is read.",
        "The sink is the generator's own ceiling, the bare echo that of Python and uvloop. "
        "This is the row to hold beside peers that take one message at a time.",
    ]
    for depth, count in (
        (1, session.plan.single_requests),
        (8, session.plan.single_requests_deep),
    ):
        title = "one outstanding" if depth == 1 else f"{depth} outstanding"
        systems = session.with_peers(EVERY, NONE, SINK, ECHO)
        cases = {name: partial(_run, session, name, depth, count) for name in systems}
        runs = session.in_turns(f"single, {title}", cases)
        for name in (EVERY, NONE):
            row, mine = f"{title} per connection, {name}", runs[name]
            section.add(
                row, mine, "requests_per_s", REQUESTS, target=at_least(40_000, "40 k req/s")
            )
            section.add(row, mine, "requests_per_s", REQUESTS, reference=runs[ECHO])
            section.add(row, mine, "requests_per_s", REQUESTS, reference=runs[SINK])
            if KAFKA in runs:
                section.add(
                    row,
                    mine,
                    "requests_per_s",
                    REQUESTS,
                    reference=runs[KAFKA],
                    target=times_at_least(1.0),
                )
            section.add(
                f"{row}: broker CPU per request",
                mine,
                "broker_cpu_us",
                MICROSECONDS,
                reference=runs[ECHO],
            )


def _run(session: Session, name: str, depth: int, count: int) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        return raw_produce(
            session.tools, system, topic, connections=CONNECTIONS, depth=depth, count=count
        )
