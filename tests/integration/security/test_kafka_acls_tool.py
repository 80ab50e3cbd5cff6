"""Apache Kafka's own tool for access control lists."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers import PeerUnavailable
from tests.integration.process import Broker
from tests.judge.tools import jars, run_tool

from .nodes import ADMIN, GuardedBroker
from .test_kafka_tools_sasl import credentials

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "GOQUEUE_TEST_TOOLS" not in os.environ,
        reason="`make judge-security` runs Kafka's tools, which Maven fetches",
    ),
    pytest.mark.single_node("the tool is what is tested"),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        if shutil.which("java") is None:
            raise PeerUnavailable("there is no Java")
        jars()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    broker = GuardedBroker(tmp_path_factory.mktemp("acls"), {"security.access_control": "auto"})
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def test_kafka_acls_adds_lists_and_removes(node: Broker, tmp_path: Path) -> None:
    login = credentials(tmp_path, ADMIN.mechanism, ADMIN.user, ADMIN.password)
    common = ["--bootstrap-server", node.bootstrap, "--command-config", login]

    def acls(*words: str) -> str:
        done = run_tool("kafka-acls", *common, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    prefixed = ["--topic", "ord", "--group", "*", "--resource-pattern-type", "prefixed"]
    deny = ["--deny-principal", "User:bob", "--deny-host", "192.0.2.1", "--operation", "Read"]
    acls("--add", *deny, *prefixed)
    acls("--add", "--allow-principal", "User:alice", "--operation", "Alter", "--cluster")
    listed = acls("--list")
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"principal=User:alice, host=*, operation={operation}, permission" in listed
    assert "principal=User:bob, host=192.0.2.1, operation=READ, permissionType=DENY" in listed
    assert "resourceType=CLUSTER, name=kafka-cluster" in listed
    matching = acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "name=ord, patternType=PREFIXED" in matching
    assert "CLUSTER" not in matching
    acls(
        "--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "orders"
    )
    assert "operation=WRITE" not in acls("--list")
    acls("--remove", "--force", "--cluster")
    assert "CLUSTER" not in acls("--list")
