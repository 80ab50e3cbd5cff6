"""A client that minds its own business, and measures how long it is kept waiting.

Run as a process of its own: `bystander.py HOST PORT PID PATH`. It asks the node with process id PID
for PATH again and again until its standard input is closed, and prints the longest wait as JSON: in
wall-clock time, and in processor time that the node's event loop spent on other things meanwhile.
The latter does not depend on what else the machine is doing.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time
from pathlib import Path

PAUSE_SECONDS = 0.005
ANSWER_SECONDS_MAX = 60


def main() -> None:
    host, port, pid, path = sys.argv[1:]
    schedule = Path(f"/proc/{pid}/task/{pid}/schedstat")
    connection = http.client.HTTPConnection(host, int(port), timeout=ANSWER_SECONDS_MAX)
    wall = busy = 0.0
    count = 0
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        busy_before, asked = _busy_seconds(schedule), time.monotonic()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        took, worked = time.monotonic() - asked, _busy_seconds(schedule) - busy_before
        if answer.status != 200:
            sys.exit(f"{path} was answered with {answer.status}: {body[:200]!r}")
        # The first answers pay for caches and connections.
        if count >= 3:
            wall, busy = max(wall, took), max(busy, worked)
        if count == 3:
            _tell("measuring")
        count += 1
    _tell(json.dumps({"wall": wall, "busy": busy, "count": count}))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _busy_seconds(schedule: Path) -> float:
    return int(schedule.read_text().split()[0]) / 1e9


main()
