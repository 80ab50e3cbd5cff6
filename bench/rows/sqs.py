"""SQS by boto3: send in batches, receive and delete in batches."""

from __future__ import annotations

from functools import partial

from bench.plan import PAYLOAD_NAMES
from bench.report import (
    MESSAGES,
    MICROSECONDS,
    MILLISECONDS,
    Outcome,
    Runs,
    Section,
    times_at_least,
)
from bench.session import ELASTICMQ, EVERY, MOTO, NONE, Session
from bench.sqs_load import send_and_consume

CONNECTIONS = 16
BATCH = 10
SIZE = 1000
MODES = {"send": "send", "consume": "receive + delete"}
TARGETS = {MOTO: times_at_least(10.0), ELASTICMQ: times_at_least(1.0)}


def measure(session: Session) -> None:
    """Both halves of the way through a queue, beside others that speak SQS."""
    title = f"SQS by boto3, {PAYLOAD_NAMES[SIZE]}, batches of {BATCH}, {CONNECTIONS} connections"
    section = session.section(title)
    section.notes += [
        "AWS JSON, signed as boto3 signs; a client is as many processes as there are cores, up to "
        "four, with a thread for each connection, and shares the machine with the server. The "
        "client CPU tells how much of a figure is boto3.",
        "A queue is filled, then received from and deleted, ten at a time. The digest of every "
        "answer is compared; every message must be received exactly once, every delete be "
        "answered with success, and the queue must be empty then.",
        "moto gets a queue for each connection: in a queue that several threads delete from, its "
        "deletes undo one another, and a deleted message is still there.",
        "GoQueue stores messages and journals deletes on disk; moto and ElasticMQ keep all in "
        "memory. moto gets fewer messages, since its calls slow down as its queues grow.",
    ]
    names = (EVERY, NONE)
    cases = {name: partial(_run, session, name) for name in names}
    cases |= {name: partial(_run_peer, session, name) for name in session.sqs_peers()}
    runs = session.in_turns("sqs", cases)
    for name in names:
        for mode in MODES:
            _add(section, runs, name, mode)


def _add(section: Section, runs: dict[str, Runs], name: str, mode: str) -> None:
    row, mine = f"{MODES[mode]}, {name}", runs[name]
    section.add(row, mine, f"{mode}_per_s", MESSAGES)
    for peer, target in TARGETS.items():
        if peer in runs:
            section.add(row, mine, f"{mode}_per_s", MESSAGES, reference=runs[peer], target=target)
    section.add(f"{row}: p50 of one batch", mine, f"{mode}_p50_ms", MILLISECONDS)
    section.add(f"{row}: p99 of one batch", mine, f"{mode}_p99_ms", MILLISECONDS)
    section.add(f"{row}: broker CPU per message", mine, f"{mode}_broker_cpu_us", MICROSECONDS)
    section.add(f"{row}: client CPU per message", mine, f"{mode}_client_cpu_us", MICROSECONDS)


def _run(session: Session, name: str) -> Outcome:
    server = session.server(name)
    return send_and_consume(
        f"http://{server.sqs}",
        server.pid,
        connections=CONNECTIONS,
        count=session.plan.sqs_messages,
        size=SIZE,
    )


def _run_peer(session: Session, name: str) -> Outcome:
    peer, plan = session.sqs_peer(name), session.plan
    return send_and_consume(
        peer.endpoint,
        None,
        connections=CONNECTIONS,
        count=plan.sqs_messages_moto if name == MOTO else plan.sqs_messages,
        size=SIZE,
        queues=CONNECTIONS if name == MOTO else 1,
    )
