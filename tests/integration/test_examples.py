"""The examples run as they are, and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import StartBroker
from .process import END_WITH_US, STOP_SECONDS_MAX
from .waiting import eventually

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
    "outbox.py": [
        "power cut at event 4: 1, 2",
        "after the restart 3 more: 1, 2, 3, 4, 5",
        "again, and nothing is left: 0",
    ],
    "fan_out_with_replay.py": [
        "3 mails",
        "the index has ['green lamp', 'oak chair']",
        "rebuilt: ['green lamp', 'oak chair']",
        "mails are not sent again: 0 to send",
    ],
    "order_processing/goqueue_shop.py": [
        "charged order 1 at attempt 1",
        "charged order 2 at attempt 2",
        "shipped order 3",
        "3 surveys wait",
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
        file.relative_to(EXAMPLES).as_posix()
        for file in EXAMPLES.rglob("*.py")
        if "from goqueue import" in file.read_text()
    }
    assert with_client == set(PRINTED)


def test_the_shop_of_celery_works_through_its_orders(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    environment = os.environ | {"SHOP_SQS": start_broker().sqs.removeprefix("http://")}
    folder = EXAMPLES / "order_processing"
    log = tmp_path / "log"
    command = [sys.executable, "-m", "celery", "-A", "celery_shop", "worker", "--pool", "solo"]
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [*END_WITH_US, *command], cwd=folder, env=environment, stdout=output, stderr=output
        )
    try:
        place = [sys.executable, "celery_shop.py", "3"]
        subprocess.run(place, cwd=folder, env=environment, check=True, timeout=RUN_SECONDS_MAX)
        for number in (1, 2, 3):
            eventually(
                lambda number=number: f"shipped order {number}" in log.read_text(),
                because=f"order {number} was shipped",
                within=RUN_SECONDS_MAX,
            )
    finally:
        worker.terminate()
        worker.wait(STOP_SECONDS_MAX)
