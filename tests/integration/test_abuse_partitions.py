"""Topics of as many partitions as there may be: others are served while they are made."""

from __future__ import annotations

import httpx

from .abuse import bounded
from .conftest import StartBroker

PARTITIONS = 10_000
ANSWER_SECONDS_MAX = 120.0


def test_nobody_waits_for_ten_thousand_partitions(start_broker: StartBroker) -> None:
    node = start_broker()
    wanted = {"name": "wide", "partitions": PARTITIONS}
    with bounded(node):
        made = httpx.post(f"{node.http}/v1/topics", json=wanted, timeout=ANSWER_SECONDS_MAX)
        assert made.is_success, made.text
        gone = httpx.delete(f"{node.http}/v1/topics/wide", timeout=ANSWER_SECONDS_MAX)
        assert gone.is_success, gone.text


def test_nobody_waits_for_partitions_that_are_added(start_broker: StartBroker) -> None:
    node = start_broker()
    httpx.post(f"{node.http}/v1/topics", json={"name": "wide", "partitions": 1}).raise_for_status()
    with bounded(node):
        grown = httpx.post(
            f"{node.http}/v1/topics/wide/partitions",
            json={"partitions": PARTITIONS},
            timeout=ANSWER_SECONDS_MAX,
        )
        assert grown.is_success, grown.text
