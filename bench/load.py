"""Runs of the load generators: started, timed, counted and checked."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.clients.build import Toolbox
from bench.processes import Load, cpu_seconds, finish_load, run_load, start_load
from bench.report import Outcome
from bench.systems import System
from bench.topics import Topic, miscount

RUN_SECONDS_MAX = 120
# A generator stops by itself first, so that its own account of the failure is heard.
GRACE_SECONDS = 30
FILL_BLOCK = 500
# A reader by librdkafka has two threads that touch each message. With small ones they slow one
# another on two cores: C 3.1 -> 4.7 million messages a second on one, Python 1.24 -> 1.53.
ONE_CORE_BYTES_MAX = 100


class Transport(NamedTuple):
    """Another listener of a system, and the settings of librdkafka for it."""

    bootstrap: str
    settings: Mapping[str, str]


def produce(
    tools: Toolbox,
    client: str,
    system: System,
    topic: Topic,
    *,
    count: int,
    size: int,
    held: int = 0,
    acks: str = "1",
    over: Transport | None = None,
) -> Outcome:
    """Batched produce by librdkafka, from C or from Python, to a topic that holds `held`."""
    command = _client(tools, client, "produce", system, topic, count=count, size=size)
    return _produce([*_reached(command, over), "--acks", acks], system, topic, held)


def produce_payload(system: System, topic: Topic, *, count: int, payload: bytes) -> Outcome:
    """The same by librdkafka from Python, with a payload that means something to the broker."""
    command = [
        *(sys.executable, "-m", "bench.clients.confluent_bench", "produce"),
        *("--brokers", system.bootstrap, "--topic", topic.name),
        *("--partitions", str(topic.partitions), "--count", str(count)),
        *("--payload", base64.b64encode(payload).decode()),
        *("--seconds-max", str(RUN_SECONDS_MAX)),
    ]
    return _produce(command, system, topic, 0)


def fill(
    tools: Toolbox, system: System, topic: Topic, *, count: int, size: int, held: int
) -> Outcome:
    """Produce in C to all partitions in turn, so that each gets its share."""
    command = _client(tools, "C", "produce", system, topic, count=count, size=size)
    return _produce([*command, "--block", str(FILL_BLOCK)], system, topic, held)


def _produce(command: Sequence[str], system: System, topic: Topic, held: int) -> Outcome:
    before = cpu_seconds(system.pid)
    result = run(command)
    broker_cpu = cpu_seconds(system.pid) - before
    values = {
        "messages_per_s": result["messages_per_s"],
        "broker_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
        "client_cpu_us": result["cpu_seconds"] * 1e6 / max(result["acked"], 1),
        "acked": result["acked"],
    }
    void = complaint(result) or miscount(system, topic, held + result["acked"])
    return Outcome(values, void)


def share(
    tools: Toolbox,
    system: System,
    topic: Topic,
    *,
    group: str,
    consumers: int,
    count: int,
    size: int,
) -> Outcome:
    """Receive and accept all records of a topic by members of a share group, from Go."""
    before = cpu_seconds(system.pid)
    result = run(
        [
            *(str(tools.share_bench()), "--bootstrap", system.bootstrap, "--group", group),
            *("--topic", topic.name, "--partitions", str(topic.partitions)),
            *("--count", str(count), "--warmup", str(count // 20), "--size", str(size)),
            *("--consumers", str(consumers), "--seconds-max", str(RUN_SECONDS_MAX)),
        ]
    )
    broker_cpu = cpu_seconds(system.pid) - before
    values = {
        "messages_per_s": result["timed"] / result["seconds"],
        "broker_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
        "client_cpu_us": result["cpu_seconds"] * 1e6 / max(result["acked"], 1),
        "first_message_ms": result["first_message_ms"],
    }
    return Outcome(values, complaint(result))


def consume(
    tools: Toolbox,
    client: str,
    system: System,
    topic: Topic,
    *,
    count: int,
    size: int,
    over: Transport | None = None,
) -> Outcome:
    """Read a topic from its beginning by librdkafka, from C or from Python."""
    before = cpu_seconds(system.pid)
    result = run(_reached(_reader(tools, client, system, topic, count=count, size=size), over))
    broker_cpu = cpu_seconds(system.pid) - before
    values = {
        "messages_per_s": result["messages_per_s"],
        "broker_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
        "first_message_ms": result["first_message_ms"],
    }
    return Outcome(values, complaint(result))


def consume_last(
    tools: Toolbox, system: System, topic: Topic, *, starts: Sequence[int], count: int, size: int
) -> Outcome:
    """Read a topic in C from these offsets on."""
    command = _reader(tools, "C", system, topic, count=count, size=size)
    before = cpu_seconds(system.pid)
    result = run([*command, "--from", ",".join(map(str, starts))])
    broker_cpu = cpu_seconds(system.pid) - before
    values = {
        "messages_per_s": result["messages_per_s"],
        "broker_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
    }
    return Outcome(values, complaint(result))


def follow(tools: Toolbox, system: System, topic: Topic, *, count: int, size: int) -> Outcome:
    """A consumer in C reading what a producer in C is writing at the same time."""
    # The producer's warm-up sends one message to each partition beyond `count`.
    total = count + topic.partitions
    reading = start_load(_reader(tools, "C", system, topic, count=total, size=size))
    try:
        written = run(_client(tools, "C", "produce", system, topic, count=count, size=size))
    finally:
        read = finish_load(reading, RUN_SECONDS_MAX + GRACE_SECONDS)
    values = {"messages_per_s": read["timed"] / read["seconds"]}
    void = complaint(written) or complaint(read) or miscount(system, topic, written["acked"])
    return Outcome(values, void)


def publish(tools: Toolbox, system: System, topic: Topic, *, count: int, warmup: int) -> Outcome:
    """One outstanding message at a time, by librdkafka in C."""
    command = _client(tools, "C", "publish", system, topic, count=count, size=1000)
    result = run([*command, "--warmup", str(warmup)])
    return Outcome(latency(result), complaint(result) or miscount(system, topic, result["acked"]))


def end_to_end(
    tools: Toolbox, system: System, topic: Topic, *, rate: int, linger_ms: int, seconds: float
) -> Outcome:
    """From the moment a message was due to the moment a consumer had it."""
    count = int(rate * seconds)
    command = _client(tools, "C", "endtoend", system, topic, count=count, size=1000)
    command += ["--rate", str(rate), "--warmup", str(rate // 2), "--linger", str(linger_ms)]
    result = run(command)
    return Outcome(latency(result), complaint(result))


def raw_produce(
    tools: Toolbox,
    system: System,
    topic: Topic,
    *,
    connections: int,
    depth: int,
    count: int,
    records: int = 1,
    size: int = 1000,
    held: int = 0,
) -> Outcome:
    """Prebuilt produce requests, `depth` outstanding on each connection."""
    command = [
        *_raw(tools, "produce", system, topic),
        *("--connections", str(connections), "--depth", str(depth)),
        *("--records", str(records), "--size", str(size)),
        *("--count", str(count), "--warmup", str(max(count // 20, 100))),
    ]
    before = cpu_seconds(system.pid)
    result = run(command)
    broker_cpu = cpu_seconds(system.pid) - before
    values = latency(result) | {
        "requests_per_s": result["requests_per_s"],
        "messages_per_s": result["timed_records"] / result["seconds"],
        "broker_cpu_us": broker_cpu * 1e6 * records / max(result["acked"], 1),
        "acked": result["acked"],
    }
    void = complaint(result) or miscount(system, topic, held + result["acked"])
    return Outcome(values, void)


def raw_fetch(tools: Toolbox, system: System, topic: Topic, ends: Sequence[int]) -> Outcome:
    """Fetch whole partitions and check the offsets of the batches, decoding no record."""
    command = [*_raw(tools, "fetch", system, topic), "--ends", ",".join(map(str, ends))]
    before = cpu_seconds(system.pid)
    result = run(command)
    broker_cpu = cpu_seconds(system.pid) - before
    values = {
        "messages_per_s": result["timed_records"] / result["seconds"],
        "gigabytes_per_s": result["bytes"] / result["seconds"] / 1e9,
        "message_bytes": result["bytes"] / max(result["acked"], 1),
        "broker_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
    }
    return Outcome(values, complaint(result))


def kafka_schedule(
    tools: Toolbox,
    system: System,
    topic: Topic,
    *,
    count: int,
    size: int,
    due_from_ms: int,
    due_until_ms: int,
) -> Outcome:
    """Messages that are due between two moments from now, by librdkafka in C."""
    command = [
        *_schedules(tools, "schedule", system, topic, count=count, size=size),
        *("--due-from-ms", str(due_from_ms), "--due-until-ms", str(due_until_ms)),
    ]
    result = run([*command, "--seconds-max", str(RUN_SECONDS_MAX)])
    values = {"insert_per_s": result["acked"] / result["seconds"]}
    return Outcome(values, complaint(result))


def watch_releases(
    tools: Toolbox, system: System, topic: Topic, *, count: int, size: int, seconds_max: float
) -> Load:
    """Start to follow a topic until so many messages were released to it; `finish_load` ends it."""
    command = _schedules(tools, "watch", system, topic, count=count, size=size)
    return start_load([*command, "--seconds-max", str(seconds_max)])


def _schedules(
    tools: Toolbox, mode: str, system: System, topic: Topic, *, count: int, size: int
) -> list[str]:
    return [
        *(str(tools.rdkafka_schedules()), mode),
        *("--brokers", system.bootstrap, "--topic", topic.name),
        *("--partitions", str(topic.partitions), "--count", str(count), "--size", str(size)),
    ]


def _client(
    tools: Toolbox, client: str, mode: str, system: System, topic: Topic, *, count: int, size: int
) -> list[str]:
    if client == "C":
        program = [str(tools.rdkafka_bench())]
    else:
        program = [sys.executable, "-m", "bench.clients.confluent_bench"]
    return [
        *program,
        mode,
        *("--brokers", system.bootstrap, "--topic", topic.name),
        *("--partitions", str(topic.partitions), "--count", str(count), "--size", str(size)),
        *("--seconds-max", str(RUN_SECONDS_MAX)),
    ]


def _reached(command: Sequence[str], over: Transport | None) -> list[str]:
    """The same command of the C client, over another listener."""
    if over is None:
        return list(command)
    at = command.index("--brokers") + 1
    words = [one for name, text in over.settings.items() for one in ("-X", f"{name}={text}")]
    return [*command[:at], over.bootstrap, *command[at + 1 :], *words]


def _reader(
    tools: Toolbox, client: str, system: System, topic: Topic, *, count: int, size: int
) -> list[str]:
    command = _client(tools, client, "consume", system, topic, count=count, size=size)
    if size > ONE_CORE_BYTES_MAX:
        return command
    return ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]


def _raw(tools: Toolbox, mode: str, system: System, topic: Topic) -> list[str]:
    host, port = system.bootstrap.rsplit(":", 1)
    return [
        str(tools.raw_bench()),
        mode,
        *("--host", host, "--port", port, "--topic", topic.name),
        *("--partitions", str(topic.partitions), "--seconds-max", str(RUN_SECONDS_MAX)),
    ]


def run(command: Sequence[str]) -> dict[str, Any]:
    """Run a load generator that stops by itself after `RUN_SECONDS_MAX`."""
    return run_load(command, RUN_SECONDS_MAX + GRACE_SECONDS)


def latency(result: dict[str, Any]) -> dict[str, float]:
    """The percentiles of a run."""
    return {name: result[name] for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")}


def complaint(result: dict[str, Any]) -> str:
    """Why a run does not count; empty when it does."""
    if result["failed"]:
        return f"{result['failed']:,} failed, first: {result['first_error']}"
    return f"{result['missing']:,} missing" if result["missing"] else ""
