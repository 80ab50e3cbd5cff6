"""Times the way of a newcomer: clone, install, start, first message. `make newcomer` runs it.

    python tools/newcomer.py [--limit SECONDS]

The clone is of the last commit of this repository, so what is fetched over the network is what
`pip` does not have in its cache. With a limit, a way that takes longer is a failure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

REPOSITORY = Path(__file__).parents[1]
START_SECONDS_MAX = 600
LISTENERS = ("kafka", "http", "registry", "sqs")
MESSAGE = "hello, world"


class TooSlow(Exception):
    """The way took longer than it may."""


@contextmanager
def timed(what: str, steps: dict[str, float]) -> Iterator[None]:
    begun = time.monotonic()
    print(f"{what} …", flush=True)
    yield
    steps[what] = time.monotonic() - begun
    print(f"{what}: {steps[what]:.1f} s", flush=True)


def follow(source: Path, folder: Path) -> dict[str, float]:
    """The seconds of each step."""
    steps: dict[str, float] = {}
    clone, ready = folder / "goqueue", folder / "ready.json"
    with timed("clone", steps):
        subprocess.run(
            ["git", "clone", "--quiet", "--depth", "1", f"file://{source}", clone], check=True
        )
    with timed("install", steps):
        subprocess.run(["make", "--quiet", "setup"], cwd=clone, check=True)
    arguments = " ".join(f"--listen-{one} 127.0.0.1:0" for one in LISTENERS)
    command = ["make", "--quiet", "serve", f"ARGS=--ready-file {ready} {arguments}"]
    with (folder / "output").open("wb") as output:
        node = subprocess.Popen(command, cwd=clone, stdout=output, stderr=output)
    try:
        with timed("start", steps):
            http = _address(ready, node)
        with timed("message", steps):
            _send_and_read(http)
    finally:
        node.terminate()
        node.wait(60)
    return steps


def _address(ready: Path, node: subprocess.Popen[bytes]) -> str:
    """Where the node serves HTTP, once it does."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not ready.exists():
        if node.poll() is not None:
            raise SystemExit(f"The node has ended: {(ready.parent / 'output').read_text()}")
        if time.monotonic() > deadline:
            raise SystemExit(f"The node has not started within {START_SECONDS_MAX} s.")
        time.sleep(0.02)
    return str(json.loads(ready.read_text())["http"])


def _send_and_read(http: str) -> None:
    url = f"http://{http.removeprefix('http://')}/v1/topics/first"
    headers = {"Content-Type": "application/json"}
    body = json.dumps({"value": MESSAGE}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/publish", body, headers)):
        pass
    with urllib.request.urlopen(f"{url}/messages") as answer:
        [message] = json.load(answer)["messages"]
    if message["value"] != MESSAGE:
        raise SystemExit(f"Another message was read: {message}")


def check(steps: dict[str, float], limit: float) -> float:
    """Return the seconds of the whole way; raise if that is more than the limit."""
    total = sum(steps.values())
    if total > limit:
        raise TooSlow(f"From clone to first message: {total:.1f} s, more than {limit:.0f} s.")
    return total


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Time the way from a clone to the first message.")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    limit = parser.parse_args(arguments).limit
    with TemporaryDirectory(prefix="newcomer-") as folder:
        steps = follow(REPOSITORY, Path(folder))
        try:
            print(f"from clone to first message: {check(steps, limit):.1f} s", flush=True)
        except TooSlow as slow:
            print(slow, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
