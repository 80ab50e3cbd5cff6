"""Runs of the gRPC load generator."""

from __future__ import annotations

from bench.clients.build import Toolbox
from bench.load import RUN_SECONDS_MAX, complaint, run
from bench.processes import cpu_seconds
from bench.report import Outcome
from bench.systems import Server
from bench.topics import Topic, miscount


def publish(
    tools: Toolbox,
    server: Server,
    topic: Topic,
    *,
    streams: int,
    batch: int,
    count: int,
    size: int,
) -> Outcome:
    """Publish to an empty topic over streams, `batch` messages per request."""
    command = [
        *_client(tools, "publish", server, topic),
        *("--streams", str(streams), "--batch", str(batch)),
        *("--count", str(count), "--size", str(size)),
    ]
    outcome, acked = _run(server, command)
    return Outcome(outcome.values, outcome.void or miscount(server, topic, acked))


def receive_and_ack(
    tools: Toolbox,
    server: Server,
    topic: Topic,
    group: str,
    *,
    streams: int,
    batch: int,
    count: int,
    size: int,
) -> Outcome:
    """Receive `count` messages exactly once over streams, and acknowledge all of them."""
    command = [
        *_client(tools, "consume", server, topic),
        *("--group", group, "--streams", str(streams), "--batch", str(batch)),
        *("--count", str(count), "--size", str(size)),
    ]
    return _run(server, command)[0]


def _client(tools: Toolbox, mode: str, server: Server, topic: Topic) -> list[str]:
    return [
        *(str(tools.grpc_bench()), mode, "--address", server.grpc, "--topic", topic.name),
        *("--partitions", str(topic.partitions), "--seconds-max", str(RUN_SECONDS_MAX)),
    ]


def _run(server: Server, command: list[str]) -> tuple[Outcome, int]:
    """What a run measured, and how many messages were confirmed."""
    before = cpu_seconds(server.pid)
    result = run(command)
    broker_cpu = cpu_seconds(server.pid) - before
    acked = int(result["acked"])
    values = {
        "messages_per_s": acked / result["seconds"],
        "broker_cpu_us": broker_cpu * 1e6 / max(acked, 1),
        "client_cpu_us": result["cpu_seconds"] * 1e6 / max(acked, 1),
    }
    return Outcome(values, complaint(result)), acked
