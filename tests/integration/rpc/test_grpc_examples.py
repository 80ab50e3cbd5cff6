"""The examples in Go and Node, made from the proto files alone, against a node."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers import PeerUnavailable
from goqueue.wire.grpc.messages import group_service_pb2 as groups
from tests.integration.process import Broker
from tests.integration.waiting import eventually
from tests.judge.grpc_clients import CLIENTS

from .calls import Rpc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        "GOQUEUE_TEST_TOOLS" not in os.environ,
        reason="`make judge-grpc` runs these clients, which Go and npm fetch",
    ),
]
SECONDS = 120


@pytest.fixture(params=CLIENTS)
def example(request: pytest.FixtureRequest) -> list[str]:
    try:
        return CLIENTS[request.param]()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))


def published(example: list[str], node: Broker, topic: str, values: list[str]) -> None:
    done = subprocess.run(
        [*example, node.grpc, "publish", topic],
        input="".join(f"{one}\n" for one in values),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"published {len(values)}\n"


class Receiving:
    """An example that receives messages, and writes them to a file."""

    def __init__(self, example: list[str], address: str, topic: str, directory: Path) -> None:
        self._out, self._errors = directory / "out", directory / "errors"
        with self._out.open("w") as out, self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*example, address, "receive", topic, topic], stdout=out, stderr=errors
            )

    @property
    def values(self) -> list[str]:
        return self._out.read_text().splitlines()

    def stop(self) -> list[str]:
        """Stop it as Ctrl-C does; return what it has received."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(SECONDS)
        errors = self._errors.read_text()
        assert code == 0, errors
        assert errors == f"acknowledged {len(self.values)}\n"
        return self.values


@pytest.fixture
def starting(example: list[str], node: Broker, name: str, tmp_path: Path) -> Iterator[object]:
    started: list[Receiving] = []

    def start() -> Receiving:
        directory = tmp_path / f"{len(started)}"
        directory.mkdir()
        started.append(Receiving(example, node.grpc, name, directory))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_what_was_published_is_received_once_by_two_that_are_stopped(
    example: list[str], node: Broker, rpc: Rpc, name: str, starting: object
) -> None:
    rpc.create(name, partitions=4)
    values = [str(number) for number in range(30_000)]
    published(example, node, name, values)
    first = starting()  # type: ignore[operator]
    eventually(lambda: len(first.values) > 1_000, because="the first receives")
    received = first.stop()
    request = groups.GetQueueStatsRequest(group=name, topic=name)
    stats = rpc.call(rpc.groups.GetQueueStats, request)
    assert stats.in_flight == 0, "it has settled all that it had"
    assert stats.ready == len(values) - len(received)
    second = starting()  # type: ignore[operator]
    eventually(lambda: len(second.values) + len(received) >= len(values), because="the rest comes")
    received += second.stop()
    assert sorted(received, key=int) == values


def test_an_error_is_shown_with_its_reason(example: list[str], node: Broker) -> None:
    for command in (["publish", "no name!"], ["receive", "no name!", "group"]):
        done = subprocess.run(
            [*example, node.grpc, *command],
            input="a\n",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 1
        assert "no name!" in done.stderr
