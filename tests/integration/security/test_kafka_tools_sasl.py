"""Apache Kafka's own tools and console clients on a listener that requires authentication."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers import PeerUnavailable
from tests.integration.process import Broker
from tests.judge.tools import CLASSES, jars, run_tool

from .nodes import ADMIN, GuardedBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "GOQUEUE_TEST_TOOLS" not in os.environ,
        reason="`make judge-security` runs Kafka's tools, which Maven fetches",
    ),
    pytest.mark.single_node("the tools are what is tested"),
]
_MODULES = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        if shutil.which("java") is None:
            raise PeerUnavailable("there is no Java")
        jars()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    settings = {"security.connections_max_reauth_ms": 1_500}
    broker = GuardedBroker(tmp_path_factory.mktemp("tools"), settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def credentials(folder: Path, mechanism: str, user: str, password: str) -> str:
    """The file with which the tools log in."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    file = folder / f"{user}-{mechanism}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={_MODULES}.{module} required "
        f'username="{user}" password="{password}";\n'
    )
    return str(file)


def test_passwords_are_managed_with_kafka_configs(node: Broker, tmp_path: Path) -> None:
    admin = credentials(tmp_path, ADMIN.mechanism, ADMIN.user, ADMIN.password)
    common = ["--bootstrap-server", node.bootstrap, "--command-config", admin]
    bob = ["--entity-type", "users", "--entity-name", "bob"]
    made = "SCRAM-SHA-256=[iterations=8192,password=bob-secret],SCRAM-SHA-512=[password=bob-secret]"
    done = run_tool("kafka-configs", *common, "--alter", "--add-config", made, *bob)
    assert "Completed updating config for user bob." in done.stdout, done.stderr
    done = run_tool("kafka-configs", *common, "--alter", "--delete-config", "SCRAM-SHA-512", *bob)
    assert "Completed updating config for user bob." in done.stdout, done.stderr
    done = run_tool("kafka-configs", *common, "--describe", *bob)
    assert "'bob' are SCRAM-SHA-256=iterations=8192" in done.stdout, done.stderr
    done = run_tool("kafka-configs", *common, "--alter", "--delete-config", "SCRAM-SHA-512", *bob)
    assert "ResourceNotFoundException" in done.stderr + done.stdout
    run_tool("kafka-configs", *common, "--alter", "--add-config", made, *bob)
    # As the documentation says for users that are to log in by certificates or tokens.
    both = "SCRAM-SHA-256,SCRAM-SHA-512"
    done = run_tool("kafka-configs", *common, "--alter", "--delete-config", both, *bob)
    assert "Completed updating config for user bob." in done.stdout, done.stderr
    done = run_tool("kafka-configs", *common, "--describe", *bob)
    assert "SCRAM" not in done.stdout, done.stdout
    wrong = credentials(tmp_path, "PLAIN", "bob", "wrong-secret")
    listed = ["--bootstrap-server", node.bootstrap, "--command-config", wrong, "--list"]
    done = run_tool("kafka-topics", *listed)
    assert "The credentials are not valid." in done.stderr + done.stdout


def test_a_java_producer_authenticates_again_without_a_lost_message(
    node: Broker, tmp_path: Path
) -> None:
    """Sessions last 1.5 s; the producer writes for three times as long."""
    file = credentials(tmp_path, "SCRAM-SHA-256", ADMIN.user, ADMIN.password)
    common = ["--bootstrap-server", node.bootstrap, "--command-config", file, "--topic", "java"]
    java = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*"]
    command = [*java, CLASSES["kafka-console-producer"], *common]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as producer:
        assert producer.stdin is not None
        for number in range(50):
            producer.stdin.write(f"message {number}\n")
            producer.stdin.flush()
            time.sleep(0.1)  # the rate of the load
        _, errors = producer.communicate(timeout=30)
    assert "ERROR" not in errors
    count = ["--from-beginning", "--max-messages", "50", "--timeout-ms", "15000"]
    done = run_tool("kafka-console-consumer", *common, *count)
    assert sorted(done.stdout.split("\n")[:50]) == sorted(f"message {one}" for one in range(50))
    assert "has expired" not in node.log_text
