"""How long it takes to find the journeys of a key among many messages.

    python -m bench.search --messages 10000000

A node is started, and messages with different keys are sent to one topic. Then the journeys of some
keys are listed: first without filters of keys, which the first search builds, and then with them.
With `--filters always` they are built in the background, which is waited for.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from bench.peers import END_WITH_US, free_ports
from goqueue.client.http import Client

TOPIC = "searched"
MESSAGES_MAX = 20_000_000
START_SECONDS_MAX = 30
SEARCHES = 20
IN_FLIGHT_MAX = 500_000
QUIET_SECONDS = 25  # more than twice the time between looks for what has grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="of each value")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--fsync", default="none", help="every, interval or none")
    parser.add_argument("--filters", default="search", choices=("search", "always", "off"))
    parser.add_argument("--folder", help="for the data; by default a temporary one")
    options = parser.parse_args()
    if not 0 < options.messages <= MESSAGES_MAX:
        parser.error(f"--messages must be from 1 to {MESSAGES_MAX:,}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        kafka, http = free_ports(2)
        command = [
            *END_WITH_US,
            sys.executable,
            "-m",
            "goqueue",
            "serve",
            "--data-dir",
            f"{folder}/data",
        ]
        command += ["--set", f"storage.fsync={options.fsync}"]
        command += ["--listen-kafka", f"127.0.0.1:{kafka}", "--listen-http", f"127.0.0.1:{http}"]
        with (Path(folder) / "log").open("w") as log:
            node = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            with Client(f"http://127.0.0.1:{http}") as client:
                until_ready(client)
                settings = {"goqueue_key_filters": options.filters}
                client.topics.create(TOPIC, partitions=options.partitions, settings=settings)
                fill(f"127.0.0.1:{kafka}", options.messages, options.bytes)
                if options.filters == "always":
                    until_built(Path(folder) / "data" / "logs" / TOPIC)
                measure(client, options.messages)
        finally:
            node.terminate()
            node.wait(START_SECONDS_MAX)


def until_ready(client: Client) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            client.node.health()
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def until_built(folder: Path) -> None:
    """Wait until the filters no longer grow."""
    begun = changed = time.monotonic()
    size = -1
    while time.monotonic() < changed + QUIET_SECONDS:
        now = sum(one.stat().st_size for one in folder.glob("*/*.keys"))
        if now != size:
            size, changed = now, time.monotonic()
        time.sleep(0.5)
    print(f"filters of {size:,} B built {changed - begun:.0f} s later", flush=True)


def key_of(number: int) -> bytes:
    return b"customer-%010d" % number


def fill(bootstrap: str, count: int, size: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 2 * IN_FLIGHT_MAX,
            "queue.buffering.max.kbytes": 2 << 20,
        }
    )
    value = bytes(random.Random(7).randbytes(size))
    begun = time.monotonic()
    for number in range(count):
        producer.produce(TOPIC, value, key_of(number))
        if number % 10_000 == 0:
            producer.poll(0)
            while len(producer) > IN_FLIGHT_MAX:
                producer.poll(0.05)
    left = producer.flush(120)
    assert left == 0, f"{left} messages were not delivered"
    print(f"{count:,} messages of {size} B sent in {time.monotonic() - begun:.0f} s", flush=True)


def measure(client: Client, count: int) -> None:
    chance = random.Random(11)
    first_s, read, _ = search(client, chance.randrange(count))
    print(f"first search by key      {1000 * first_s:8.0f} ms  {read:>15,} B read", flush=True)
    found = [search(client, chance.randrange(count)) for _ in range(SEARCHES)]
    times = sorted(one[0] for one in found)
    middle = statistics.median(times)
    print(
        f"further ones, median     {1000 * middle:8.0f} ms  {found[0][1]:>15,} B read  "
        f"{found[0][2]:>15,} B skipped\nslowest of {SEARCHES}            {1000 * times[-1]:8.0f} ms"
    )


def search(client: Client, number: int) -> tuple[float, int, int]:
    """List the journeys of a key; return the seconds, and the bytes that were read and skipped."""
    begun = time.monotonic()
    read = skipped = found = 0
    cursor = ""
    while True:
        key = key_of(number).decode()
        page = client.journeys.list_page(topic=TOPIC, key=key, cursor=cursor)
        found += len(page.journeys)
        read, skipped, cursor = read + page.read_bytes, skipped + page.skipped_bytes, page.cursor
        if not cursor:
            break
    assert found == 1, f"{found} messages with key {number}"
    return time.monotonic() - begun, read, skipped


if __name__ == "__main__":
    main()
