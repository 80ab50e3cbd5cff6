"""The load tests of deploy/k6, run by k6 against a node; `make check-load` builds k6."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.process import Broker

REPOSITORY = Path(__file__).parents[3]
SCRIPTS = REPOSITORY / "deploy" / "k6"
BUILT = REPOSITORY / ".cache" / "go" / "bin" / "k6"
K6 = str(BUILT) if BUILT.exists() else shutil.which("k6")
RUN_SECONDS_MAX = 120

pytestmark = pytest.mark.skipif(K6 is None, reason="k6 is not there; make check-load builds it")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = {"sqs.access_keys": "AKIALOAD:a-secret-for-signatures"}
    broker = Broker(tmp_path_factory.mktemp("k6"), {"listeners.grpc": "127.0.0.1:0", **keys})
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def run(script: str, tmp_path: Path, **variables: str) -> tuple[int, dict[str, object], str]:
    """The exit code of k6, what the summary says, and what was printed."""
    assert K6 is not None
    summary = tmp_path / "summary.json"
    # A busy machine is slow: how fast a broker is, is not decided here.
    given = {"RATE": "20", "DURATION": "1s", "DRAIN_SECONDS": "1", "CONSUMERS": "2"}
    given |= {"PUBLISH_P99_MS": "60000", "DELIVERY_P99_MS": "60000", "SUMMARY": str(summary)}
    command = [K6, "run", "--quiet", "--no-usage-report"]
    for name, text in {**given, **variables}.items():
        command += ["-e", f"{name}={text}"]
    done = subprocess.run(
        [*command, str(SCRIPTS / script)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    found = json.loads(summary.read_text()) if summary.exists() else {}
    return done.returncode, found, done.stdout + done.stderr


@pytest.mark.parametrize("front_end", ["http", "grpc", "sqs"])
def test_everything_that_is_published_is_acknowledged(
    node: Broker, front_end: str, tmp_path: Path
) -> None:
    where = {
        "http": {"BASE": node.http},
        "grpc": {"ADDRESS": node.grpc},
        "sqs": {
            "ENDPOINT": node.sqs,
            "ACCESS_KEY": "AKIALOAD",
            "SECRET_KEY": "a-secret-for-signatures",
        },
    }[front_end]
    code, found, output = run(f"{front_end}.js", tmp_path, **where)
    assert code == 0, output
    assert found["failed"] == []
    assert found["published"] == found["acknowledged"]
    assert int(str(found["published"])) >= 20


def test_a_broker_that_refuses_fails_the_load_test(node: Broker, tmp_path: Path) -> None:
    wrong = {"ENDPOINT": node.sqs, "ACCESS_KEY": "AKIALOAD", "SECRET_KEY": "another-secret"}
    code, _, output = run("sqs.js", tmp_path, **wrong)
    assert code != 0, output
