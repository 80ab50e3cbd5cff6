"""The answers of Apache Kafka, written down by `make judge-kafka`, are ours too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.judge.every_case import CASES, DIFFERENCES
from tests.judge.recorded import RECORDED, expected
from tests.unit.wire.kafka.client import Client

PAUSE_MS = 50


def test_every_case_was_judged() -> None:
    assert RECORDED.keys() == CASES.keys(), "run make judge-kafka ARGS=--record"
    assert DIFFERENCES.keys() <= CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_one_of_apache_kafka(name: str) -> None:
    answer = json.loads(json.dumps(CASES[name](Asked())))
    assert answer == expected(name)


class Asked:
    """A node without sockets, on a virtual clock."""

    def __init__(self) -> None:
        self._client = Client()

    def __call__(self, name: str, request: Any, version: int | None = None) -> Any:
        return self._client.call(name, request, version)

    def pause(self) -> None:
        self._client.node.run_for(PAUSE_MS)
