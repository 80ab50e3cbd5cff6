"""Load by boto3 on queues of SQS.

    python -m bench.clients.sqs_bench send --endpoint URL --queue NAME --count N --size S
    python -m bench.clients.sqs_bench consume --endpoint URL --queue NAME --count N --size S

The connections are threads of a few processes, since one Python process has one core. `send` makes
the queues and numbers its messages; `consume` receives and deletes until every number has come.
There is one queue for all connections, or, with --queues, so many that each connection has its own.
Prints JSON fields as `confluent_bench.py` does.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

BATCH = 10
NUMBER_DIGITS = 12
VISIBILITY_SECONDS = 600  # nothing comes back within a run
# Long enough not to spin on an empty queue, short enough not to hold the end of a run back.
WAIT_SECONDS = 1


@dataclass(slots=True)
class Account:
    """What one process did."""

    numbers: list[int] = field(default_factory=list)
    call_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    ended: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """What a process has to do, and what it knows of the others."""

    arguments: argparse.Namespace
    index: int
    next_number: Any  # shared: the number to be sent next
    deleted: Any  # shared: how many messages are done, each counted once
    seen: Any  # shared: a byte for each number, set when it is done
    barrier: Any

    def take_batch(self) -> list[int]:
        """Numbers that nobody else sends."""
        with self.next_number.get_lock():
            first = self.next_number.value
            self.next_number.value = min(first + BATCH, self.arguments.count)
            return list(range(first, self.next_number.value))

    def note_deleted(self, numbers: list[int]) -> None:
        """Count what nobody has deleted before; a message that comes twice must not end a run."""
        with self.deleted.get_lock():
            for number in numbers:
                self.deleted.value += not self.seen[number]
                self.seen[number] = 1


def send(share: Share, client: Any, url: str, account: Account, deadline: float) -> None:
    """Batches of ten until all numbers are sent; every entry of every answer is looked at."""
    filler = "x" * (share.arguments.size - NUMBER_DIGITS)
    while (numbers := share.take_batch()) and time.monotonic() < deadline:
        bodies = {str(number): f"{number:0{NUMBER_DIGITS}d}{filler}" for number in numbers}
        begin = time.monotonic()
        answer = client.send_message_batch(
            QueueUrl=url,
            Entries=[{"Id": name, "MessageBody": body} for name, body in bodies.items()],
        )
        account.call_ms.append((time.monotonic() - begin) * 1000)
        account.failures += [str(one) for one in answer.get("Failed", ())]
        for one in answer["Successful"]:
            digest = hashlib.md5(bodies[one["Id"]].encode(), usedforsecurity=False).hexdigest()
            if one["MD5OfMessageBody"] != digest:
                account.failures.append("the digest of a body is wrong")
            account.numbers.append(int(one["Id"]))


def consume(share: Share, client: Any, url: str, account: Account, deadline: float) -> None:
    """Receive up to ten, delete them in one call, and again."""
    count, size = share.arguments.count, share.arguments.size
    while share.deleted.value < count and time.monotonic() < deadline:
        begin = time.monotonic()
        answer = client.receive_message(
            QueueUrl=url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=WAIT_SECONDS
        )
        messages = answer.get("Messages", [])
        if not messages:
            continue
        answer = client.delete_message_batch(
            QueueUrl=url,
            Entries=[
                {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]}
                for n, one in enumerate(messages)
            ],
        )
        account.call_ms.append((time.monotonic() - begin) * 1000)
        account.failures += [str(one) for one in answer.get("Failed", ())]
        if any(len(one["Body"]) != size for one in messages):
            account.failures.append("a body has the wrong size")
        account.numbers += [
            int(messages[int(one["Id"])]["Body"][:NUMBER_DIGITS]) for one in answer["Successful"]
        ]
        account.ended = time.monotonic()
        share.note_deleted(account.numbers[-len(answer["Successful"]) :])


Work = Callable[[Share, Any, str, Account, float], None]
MODES: dict[str, Work] = {"send": send, "consume": consume}


def run_share(share: Share, results: Any) -> None:
    """The threads of one process."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, as the C programs do
    arguments = share.arguments
    threads = arguments.connections // arguments.processes
    client = connect(arguments.endpoint, threads)
    accounts = [Account() for _ in range(threads)]
    gate = threading.Barrier(threads + 1)
    deadline = time.monotonic() + arguments.seconds_max

    def work(account: Account, thread: int) -> None:
        names = queue_names(arguments)
        name = names[(share.index * threads + thread) % len(names)]
        url = client.get_queue_url(QueueName=name)["QueueUrl"]  # opens the connection
        gate.wait()
        try:
            MODES[arguments.mode](share, client, url, account, deadline)
        except (ClientError, BotoCoreError) as error:
            account.failures.append(str(error))

    running = [
        threading.Thread(target=work, args=(one, thread)) for thread, one in enumerate(accounts)
    ]
    for each in running:
        each.start()
    share.barrier.wait()
    cpu = _cpu_seconds()
    gate.wait()
    for each in running:
        each.join()
    whole = Account(cpu_seconds=_cpu_seconds() - cpu)
    for one in accounts:
        whole.numbers += one.numbers
        whole.call_ms += one.call_ms
        whole.failures += one.failures
    whole.ended = max(one.ended for one in accounts) or time.monotonic()
    results.put(whole)


def queue_names(arguments: argparse.Namespace) -> list[str]:
    """All queues of a run."""
    return [f"{arguments.queue}-{number}" for number in range(arguments.queues)]


def connect(endpoint: str, connections: int) -> Any:
    """A client that neither retries nor waits for more than a run."""
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
        config=Config(max_pool_connections=connections, retries={"total_max_attempts": 1}),
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All processes, begun together."""
    if arguments.mode == "send":
        client = connect(arguments.endpoint, 1)
        for name in queue_names(arguments):
            attributes = {"VisibilityTimeout": str(VISIBILITY_SECONDS)}
            client.create_queue(QueueName=name, Attributes=attributes)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    next_number, deleted = context.Value("q", 0), context.Value("q", 0)
    seen = context.RawArray("b", arguments.count)
    barrier = context.Barrier(arguments.processes + 1)
    children = [
        context.Process(
            target=run_share,
            args=(Share(arguments, index, next_number, deleted, seen, barrier), results),
        )
        for index in range(arguments.processes)
    ]
    for child in children:
        child.start()
    barrier.wait(arguments.seconds_max)
    begin = time.monotonic()
    accounts = [results.get(timeout=arguments.seconds_max + 30) for _ in children]
    for child in children:
        child.join()
    return _outcome(arguments, accounts, max(one.ended for one in accounts) - begin)


def _outcome(
    arguments: argparse.Namespace, accounts: list[Account], seconds: float
) -> dict[str, Any]:
    counted = Counter(number for one in accounts for number in one.numbers)
    twice = sum(1 for times in counted.values() if times > 1)
    failures = [text for one in accounts for text in one.failures]
    if arguments.mode == "consume" and (left := _left(arguments)):
        failures.append(f"{left} messages are left in the queue")
    calls = sorted(ms for one in accounts for ms in one.call_ms)
    return {
        "acked": len(counted),
        "missing": arguments.count - len(counted),
        "twice": twice,
        "failed": len(failures),
        "first_error": failures[0] if failures else "",
        "seconds": seconds,
        "messages_per_s": len(counted) / seconds,
        "cpu_seconds": sum(one.cpu_seconds for one in accounts),
        "p50_ms": statistics.median(calls) if calls else 0.0,
        "p99_ms": calls[int(len(calls) * 0.99)] if calls else 0.0,
    }


def _left(arguments: argparse.Namespace) -> int:
    client = connect(arguments.endpoint, 1)
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = 0
    for queue in queue_names(arguments):
        url = client.get_queue_url(QueueName=queue)["QueueUrl"]
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        left += sum(int(found[name]) for name in names)
    return left


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run one mode and print its outcome."""
    parser = argparse.ArgumentParser(description="Load by boto3.")
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--processes", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--seconds-max", type=float, default=60)
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    print(json.dumps(run(arguments)), flush=True)


if __name__ == "__main__":
    main()
