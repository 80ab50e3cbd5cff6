"""Apache Kafka's own tool for quotas of clients."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bench.peers import PeerUnavailable
from tests.integration.process import Broker
from tests.judge.tools import jars, run_tool

from .nodes import ADMIN, GuardedBroker
from .test_kafka_tools_sasl import credentials

USER = ("--entity-type", "users", "--entity-name", "alice")
CLIENT = ("--entity-type", "clients", "--entity-name", "batch")
BOTH = (*USER, *CLIENT)
DEFAULT_USER = ("--entity-type", "users", "--entity-default")
ADDRESS = ("--entity-type", "ips", "--entity-name", "192.0.2.7")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "GOQUEUE_TEST_TOOLS" not in os.environ,
        reason="`make judge-security` runs Kafka's tools, which Maven fetches",
    ),
    pytest.mark.single_node("the tool is what is tested"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        if shutil.which("java") is None:
            raise PeerUnavailable("there is no Java")
        jars()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    broker = GuardedBroker(tmp_path_factory.mktemp("quotas"))
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def quotas(node: Broker) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """All quotas, as the HTTP API shows them."""
    answer = httpx.get(f"{node.http}/v1/quotas", auth=(ADMIN.user, ADMIN.password)).json()
    return [(one["entity"], one["limits"]) for one in answer["quotas"]]


def test_kafka_configs_sets_describes_and_deletes_quotas(node: Broker, tmp_path: Path) -> None:
    login = credentials(tmp_path, ADMIN.mechanism, ADMIN.user, ADMIN.password)
    common = ["--bootstrap-server", node.bootstrap, "--command-config", login]

    def configs(*words: str) -> str:
        done = run_tool("kafka-configs", *common, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    rates = "producer_byte_rate=1048576,consumer_byte_rate=2097152"
    assert "Completed updating config for user alice." in configs(
        *USER, "--alter", "--add-config", rates
    )
    assert "Completed updating config for client batch." in configs(
        *CLIENT, "--alter", "--add-config", "request_percentage=50"
    )
    configs(*BOTH, "--alter", "--add-config", "controller_mutation_rate=5")
    configs(*DEFAULT_USER, "--alter", "--add-config", "producer_byte_rate=1024")
    configs(*ADDRESS, "--alter", "--add-config", "connection_creation_rate=20")
    assert sorted(quotas(node), key=str) == sorted(
        [
            ({"user": "alice"}, {"producer_byte_rate": 1048576, "consumer_byte_rate": 2097152}),
            ({"client-id": "batch"}, {"request_percentage": 50}),
            ({"client-id": "batch", "user": "alice"}, {"controller_mutation_rate": 5}),
            ({"user": None}, {"producer_byte_rate": 1024}),
            ({"ip": "192.0.2.7"}, {"connection_creation_rate": 20}),
        ],
        key=str,
    )

    described = configs(*USER, "--describe")
    assert "Quota configs for user-principal 'alice' are" in described
    assert "producer_byte_rate=1048576.0" in described
    assert "consumer_byte_rate=2097152.0" in described
    assert "client-id 'batch'" not in described
    assert "request_percentage=50.0" in configs(*CLIENT, "--describe")
    assert "controller_mutation_rate=5.0" in configs(*BOTH, "--describe")
    assert "the default user-principal" in configs(*DEFAULT_USER, "--describe")
    assert "connection_creation_rate=20.0" in configs(*ADDRESS, "--describe")

    configs(*USER, "--alter", "--delete-config", "producer_byte_rate")
    described = configs(*USER, "--describe")
    assert "producer_byte_rate" not in described
    assert "consumer_byte_rate=2097152.0" in described
    configs(*USER, "--alter", "--delete-config", "consumer_byte_rate")
    assert "Quota configs" not in configs(*USER, "--describe")
    assert ({"client-id": "batch"}, {"request_percentage": 50}) in quotas(node)


def test_kafka_configs_is_told_what_is_not_a_quota(node: Broker, tmp_path: Path) -> None:
    login = credentials(tmp_path, ADMIN.mechanism, ADMIN.user, ADMIN.password)
    common = ["--bootstrap-server", node.bootstrap, "--command-config", login]
    before = quotas(node)
    done = run_tool("kafka-configs", *common, *USER, "--alter", "--add-config", "request_bytes=1")
    assert "request_bytes" in done.stderr + done.stdout
    negative = "producer_byte_rate=-1"
    done = run_tool("kafka-configs", *common, *USER, "--alter", "--add-config", negative)
    assert "InvalidRequestException" in done.stderr + done.stdout, done.stderr
    assert quotas(node) == before
