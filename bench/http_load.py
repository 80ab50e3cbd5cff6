"""Runs of the HTTP load generators, and the few HTTP calls that prepare them."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from bench.clients.build import Toolbox
from bench.load import RUN_SECONDS_MAX, complaint, latency, run
from bench.processes import LoadFailed, cpu_seconds
from bench.report import Outcome
from bench.systems import Server, Unavailable
from bench.topics import Topic, miscount

CALL_SECONDS_MAX = 60


def call(server: Server, method: str, path: str, body: object = None) -> Any:
    """One HTTP call; raises `Unavailable` where the route is missing, else says what went wrong."""
    connection = http.client.HTTPConnection(server.http, timeout=CALL_SECONDS_MAX)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status in (404, 405):
        raise Unavailable(f"{server.name} has no {method} {path}")
    if answer.status >= 300:
        raise LoadFailed(f"{method} {path}: status {answer.status}: {content[:200]!r}")
    return json.loads(content) if content else None


def publish(
    tools: Toolbox, server: Server, topic: Topic, *, connections: int, records: int, count: int
) -> Outcome:
    """Publishes of 1 KB messages, `records` per request, one outstanding on each connection."""
    command = [
        *_client(tools.http_bench(), server),
        *("--topic", topic.name, "--connections", str(connections), "--records", str(records)),
        *("--count", str(count), "--warmup", str(max(count // 20, 100))),
    ]
    before = cpu_seconds(server.pid)
    result = run(command)
    broker_cpu = cpu_seconds(server.pid) - before
    values = latency(result) | {
        "requests_per_s": result["timed"] / result["seconds"],
        "messages_per_s": result["timed"] * records / result["seconds"],
        "request_cpu_us": broker_cpu * 1e6 * records / max(result["acked"], 1),
        "message_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
    }
    return Outcome(values, complaint(result) or miscount(server, topic, result["acked"]))


def receive_and_ack(
    tools: Toolbox,
    server: Server,
    topic: Topic,
    group: str,
    *,
    consumers: int,
    at_once: int,
    count: int,
    hold_every: int = 0,
    receipts: Path | None = None,
    is_together: bool = False,
) -> Outcome:
    """Receive `count` messages exactly once, and acknowledge all but those that are to be held.

    With `is_together` acks are a part of the next receive.
    The receipts of those that are held go to a file. Such a run is not timed from a warm state.
    """
    command = [
        *_client(tools.queue_bench(), server, "consume"),
        *("--topic", topic.name, "--group", group, "--connections", str(consumers)),
        *("--max-messages", str(at_once), "--count", str(count)),
        *("--hold-every", str(hold_every), "--warmup", str(0 if hold_every else count // 20)),
    ]
    if receipts is not None:
        command += ["--receipts", str(receipts)]
    if is_together:
        # The last acks should not wait for messages that never come.
        command += ["--together", "--wait-ms", "0"]
    before = cpu_seconds(server.pid)
    result = run(command)
    broker_cpu = cpu_seconds(server.pid) - before
    values = latency(result) | {
        "messages_per_s": result["timed"] / result["seconds"],
        "broker_cpu_us": broker_cpu * 1e6 / max(count - result["missing"], 1),
        "client_cpu_us": result["cpu_seconds"] * 1e6 / max(count - result["missing"], 1),
        "ack_p50_ms": result["ack_p50_ms"],
        "ack_p99_ms": result["ack_p99_ms"],
    }
    return Outcome(values, complaint(result))


def settle(
    tools: Toolbox,
    server: Server,
    topic: Topic,
    group: str,
    *,
    consumers: int,
    at_once: int,
    count: int,
    receipts: Path,
) -> Outcome:
    """Acknowledge `count` messages that are held, in random order."""
    command = [
        *_client(tools.queue_bench(), server, "settle"),
        *("--topic", topic.name, "--group", group, "--connections", str(consumers)),
        *("--max-messages", str(at_once), "--count", str(count), "--receipts", str(receipts)),
    ]
    before = cpu_seconds(server.pid)
    result = run(command)
    broker_cpu = cpu_seconds(server.pid) - before
    values = {
        "settle_per_s": result["acked"] / result["seconds"],
        "settle_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
    }
    return Outcome(values, complaint(result))


def end_to_end(
    tools: Toolbox,
    server: Server,
    topic: Topic,
    group: str,
    *,
    consumers: int,
    rate: int,
    seconds: float,
) -> Outcome:
    """From the moment a message was due to be published to the moment a consumer had it."""
    command = [
        *_client(tools.queue_bench(), server, "endtoend"),
        *("--topic", topic.name, "--group", group, "--connections", str(consumers)),
        *("--rate", str(rate), "--count", str(int(rate * seconds)), "--warmup", str(rate // 2)),
        *("--wait-ms", "20000"),
    ]
    result = run(command)
    return Outcome(latency(result), complaint(result) or miscount(server, topic, result["acked"]))


def schedule(
    tools: Toolbox,
    server: Server,
    topic: Topic,
    *,
    count: int,
    size: int,
    at_once: int,
    connections: int,
    due_from_ms: int,
    due_until_ms: int,
    ids: Path,
) -> Outcome:
    """Publish messages that are due between two moments, and keep the ids that were given."""
    command = [
        *_client(tools.http_schedules(), server, "schedule"),
        *("--topic", topic.name, "--connections", str(connections), "--records", str(at_once)),
        *("--count", str(count), "--size", str(size), "--ids", str(ids)),
        *("--due-from-ms", str(due_from_ms), "--due-until-ms", str(due_until_ms)),
    ]
    return _per_message(command, server, "insert")


def cancel(
    tools: Toolbox, server: Server, *, ids: Path, count: int, at_once: int, connections: int
) -> Outcome:
    """Cancel schedules by id, one or many per request."""
    command = [
        *_client(tools.http_schedules(), server, "cancel"),
        *("--ids", str(ids), "--connections", str(connections)),
        *("--records", str(at_once), "--count", str(count)),
    ]
    return _per_message(command, server, "cancel")


def _per_message(command: list[str], server: Server, what: str) -> Outcome:
    before = cpu_seconds(server.pid)
    result = run(command)
    broker_cpu = cpu_seconds(server.pid) - before
    values = {
        f"{what}_per_s": result["acked"] / result["seconds"],
        f"{what}_broker_us": broker_cpu * 1e6 / max(result["acked"], 1),
        f"{what}_p99_ms": result["p99_ms"],
    }
    return Outcome(values, complaint(result))


def _client(program: Path, server: Server, *mode: str) -> list[str]:
    host, port = server.http.rsplit(":", 1)
    limit = ("--seconds-max", str(RUN_SECONDS_MAX))
    return [str(program), *mode, "--host", host, "--port", port, *limit]
