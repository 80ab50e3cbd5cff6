"""Publishing over HTTP: one message per request, and a hundred."""

from __future__ import annotations

from functools import partial

from bench.http_load import publish
from bench.plan import PARTITIONS
from bench.report import (
    MESSAGES,
    MICROSECONDS,
    MILLISECONDS,
    REQUESTS,
    Outcome,
    Section,
    at_least,
    at_most,
)
from bench.session import ASGI_ECHO, EVERY, HTTP_ECHO, HTTP_SINK, NONE, Session
from bench.topics import fresh_topic

CONNECTIONS = 16
BATCH = 100
REFERENCES = (HTTP_ECHO, ASGI_ECHO, HTTP_SINK)


def measure(session: Session) -> None:
    """16 keep-alive connections with one outstanding request each."""
    section = session.section(f"HTTP publish, 1 KB, {CONNECTIONS} keep-alive connections")
    section.notes += [
        "Prebuilt requests from C; every answer's status is read and its results counted.",
        "The sink is the generator's own ceiling. The bare echoes read the body and answer a "
        "constant: httptools on uvloop, which the front end is built on, and uvicorn with an ASGI "
        "application that does nothing, which is what a Python service usually stands on.",
    ]
    _measure_one(session, section)
    _measure_many(session, section)


def _measure_one(session: Session, section: Section) -> None:
    names = (EVERY, NONE, *REFERENCES)
    count = session.plan.http_requests
    runs = session.in_turns(
        "http, one per request", {name: partial(_run, session, name, 1, count) for name in names}
    )
    for name in (EVERY, NONE):
        row, mine = f"one message per request, {name}", runs[name]
        must, aim = at_least(10_000, "10 k req/s"), at_least(30_000, "30 k req/s", "aim")
        section.add(row, mine, "requests_per_s", REQUESTS, target=must)
        section.add(row, mine, "requests_per_s", REQUESTS, target=aim)
        for reference in REFERENCES:
            section.add(row, mine, "requests_per_s", REQUESTS, reference=runs[reference])
        section.add(f"{row}: p50", mine, "p50_ms", MILLISECONDS, reference=runs[HTTP_ECHO])
        section.add(f"{row}: p99", mine, "p99_ms", MILLISECONDS, target=at_most(10.0, "10 ms"))
        section.add(
            f"{row}: broker CPU per request",
            mine,
            "request_cpu_us",
            MICROSECONDS,
            reference=runs[HTTP_ECHO],
        )


def _measure_many(session: Session, section: Section) -> None:
    names = (EVERY, NONE, *REFERENCES)
    count = session.plan.http_batches
    runs = session.in_turns(
        f"http, {BATCH} per request",
        {name: partial(_run, session, name, BATCH, count) for name in names},
    )
    for name in (EVERY, NONE):
        row, mine = f"{BATCH} messages per request, {name}", runs[name]
        for reference in REFERENCES:
            section.add(row, mine, "messages_per_s", MESSAGES, reference=runs[reference])
        section.add(f"{row}: p99 of one request", mine, "p99_ms", MILLISECONDS)
        section.add(f"{row}: broker CPU per message", mine, "message_cpu_us", MICROSECONDS)


def _run(session: Session, name: str, records: int, count: int) -> Outcome:
    server = session.server(name)
    with fresh_topic(server, PARTITIONS) as topic:
        return publish(
            session.tools, server, topic, connections=CONNECTIONS, records=records, count=count
        )
