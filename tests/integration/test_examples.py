"""The examples run as they are, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import StartBroker

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_SECONDS_MAX = 60

PRINTED = {
    "publish_and_read.py": [
        "stored as visits:",
        "stored 1000 clicks",
        "first: 'hello' of customer-7",
        "and 1009 more",
    ],
    "queue_worker.py": [
        "booked invoice 1 at attempt 1",
        "booked invoice 2 at attempt 1",
        "booked invoice 3 at attempt 2",
        "3 acknowledged, 1 tried again, 1 rejected",
        "dead: 'this is not an invoice' because not an invoice",
    ],
    "stream_totals.py": ["Oslo: 8", "Lima: 7", "Kyoto: 1", "left to read: 0"],
    "all_or_nothing.py": [
        "aborted (no bill, no shipment): 0 shipments",
        "committed at attempt 2: 1 shipment, 1 bill, 0 baskets left",
    ],
    "reminders.py": ["2 reminders wait", "drink tea", "meeting", "0 reminders wait"],
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_does_what_it_says(name: str, start_broker: StartBroker) -> None:
    broker = start_broker()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), broker.http.removeprefix("http://")],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in PRINTED[name]:
        assert text in done.stdout


def test_every_example_of_the_client_is_run() -> None:
    with_client = {
        file.name for file in EXAMPLES.glob("*.py") if "from goqueue import" in file.read_text()
    }
    assert with_client == set(PRINTED)
