"""Load by confluent-kafka from Python, the client most Python programs use.

    python -m bench.clients.confluent_bench produce --brokers B --topic T --count N --size S
    python -m bench.clients.confluent_bench consume --brokers B --topic T --count N --size S

Prints the same JSON fields as `rdkafka_bench.c`.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import json
import resource
import signal
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

QUEUED_MAX = 500_000
FETCHED_AT_ONCE = 10_000
POLL_EVERY = 4096
WARM_UP_PARTITIONS_MAX = 64


class Failures:
    """Counts what went wrong and remembers the first."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, reason: object) -> None:
        self.count += 1
        self.first = self.first or str(reason)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.add(error)


def produce(arguments: argparse.Namespace) -> dict[str, Any]:
    """Send `count` messages and wait for all of them."""
    failures = Failures()
    producer = Producer(
        {
            "bootstrap.servers": arguments.brokers,
            "acks": arguments.acks,
            "linger.ms": 5,
            "queue.buffering.max.messages": QUEUED_MAX,
            # A Python call per message would be most of the work. Only failures call back; what
            # neither failed nor is left after the flush was acknowledged, and the end offsets are
            # compared with that.
            "delivery.report.only.error": True,
            "on_delivery": failures.on_delivery,
        }
    )
    payload = base64.b64decode(arguments.payload) or b"x" * arguments.size
    warm = min(arguments.partitions, WARM_UP_PARTITIONS_MAX)
    for partition in range(warm):
        producer.produce(arguments.topic, payload, partition=partition)
    if producer.flush(30):
        raise SystemExit("the warm-up was not acknowledged within 30 s")
    cpu, begin = _cpu_seconds(), time.monotonic()
    sent = _send(producer, payload, arguments, begin + arguments.seconds_max)
    left = producer.flush(arguments.seconds_max)
    seconds, cpu = time.monotonic() - begin, _cpu_seconds() - cpu
    acked = sent - left - failures.count
    return {
        "acked": acked + warm,
        "missing": arguments.count - acked - failures.count,
        "timed": acked,
    } | _outcome(failures, seconds=seconds, cpu=cpu, timed=acked)


def _send(
    producer: Producer, payload: bytes, arguments: argparse.Namespace, deadline: float
) -> int:
    topic, send = arguments.topic, producer.produce
    sent = 0
    while sent < arguments.count and time.monotonic() < deadline:
        try:
            for _ in range(min(POLL_EVERY, arguments.count - sent)):
                send(topic, payload)
                sent += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.005)
    return sent


def consume(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read every partition from its beginning until `count` messages have come."""
    failures = Failures()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.brokers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            # When the client is ahead of the program it waits for that, not for a whole second. To
            # let it run ahead without end, as in rdkafka_bench.c, is slower: 1.55 instead of 1.82
            # million messages of 100 B a second.
            "fetch.queue.backoff.ms": 1,
        }
    )
    assigned = time.monotonic()
    consumer.assign([TopicPartition(arguments.topic, p, 0) for p in range(arguments.partitions)])
    deadline = assigned + arguments.seconds_max
    received = first_count = 0
    first = cpu = 0.0
    while received < arguments.count and not failures.count and time.monotonic() < deadline:
        messages = consumer.consume(FETCHED_AT_ONCE, 0.02)
        for message in messages:
            if (error := message.error()) is not None:
                failures.add(error)
            elif len(message) != arguments.size:
                failures.add("a message has the wrong size")
        received += len(messages)
        if messages and not first:
            first, first_count, cpu = time.monotonic(), received, _cpu_seconds()
    seconds = time.monotonic() - first
    result = {
        "acked": received,
        "missing": arguments.count - received,
        "timed": received - first_count,
        "first_message_ms": (first - assigned) * 1000,
    }
    return result | _outcome(
        failures, seconds=seconds, cpu=_cpu_seconds() - cpu, timed=received - first_count
    )


def _outcome(failures: Failures, *, seconds: float, cpu: float, timed: int) -> dict[str, Any]:
    return {
        "failed": failures.count,
        "first_error": failures.first,
        "seconds": seconds,
        "messages_per_s": timed / seconds,
        "cpu_seconds": cpu,
    }


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run one mode and print its outcome."""
    parser = argparse.ArgumentParser(description="Load by confluent-kafka.")
    parser.add_argument("mode", choices=["produce", "consume"])
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--payload", default="", help="base64; instead of --size bytes")
    parser.add_argument("--acks", default="1", help="1 or all")
    parser.add_argument("--seconds-max", type=float, default=60)
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, as the C programs do
    outcome = produce(arguments) if arguments.mode == "produce" else consume(arguments)
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
