"""Nodes, topics and groups for the integration tests."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from .clients import CLIENTS, Client
from .cluster import Cluster
from .peer import KafkaPeer
from .process import Broker
from .sqs import PROTOCOLS, Queue, connect
from .topics import create_topic
from .trio import Trio

OUTSIDE_BOOTSTRAP = os.environ.get("GOQUEUE_TEST_BOOTSTRAP")
# Another server that speaks SQS, so that the tests can be tested.
OUTSIDE_SQS = os.environ.get("GOQUEUE_TEST_SQS")
PEER = os.environ.get("GOQUEUE_TEST_PEER", "")
NODE = {"": Broker, "kafka": KafkaPeer, "cluster": Trio}[PEER]
TEST_SECONDS_MAX = 300 if NODE is Trio else 120  # three nodes take their time to start

# Short cycles, so that retention, compaction and dead members show within a test.
SHARED_SETTINGS: dict[str, object] = {
    "storage.retention_check_ms": 200,
    "compaction.check_ms": 200,
    "groups.initial_rebalance_delay_ms": 0,
    "listeners.http_hosts": "queues.example",
    "groups.session_ms_min": 1_000,
    "groups.consumer_heartbeat_ms": 500,
    "groups.consumer_session_ms": 6_000,
}

NewTopicName = Callable[..., str]
NewQueue = Callable[..., Queue]
StartBroker = Callable[..., Broker]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))
        single = item.get_closest_marker("single_node")
        if single is not None and NODE is Trio:
            item.add_marker(pytest.mark.skip(reason=f"of one node: {single.args[0]}"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The shared node, for tests that keep apart by topic and group names."""
    if OUTSIDE_BOOTSTRAP:
        pytest.skip("needs the process, and GOQUEUE_TEST_BOOTSTRAP gives only an address")
    node = NODE(tmp_path_factory.mktemp("shared"), SHARED_SETTINGS)
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture(autouse=NODE is Trio)
def turn(request: pytest.FixtureRequest) -> None:
    """Each test asks another node of the shared cluster, where it asks one."""
    if {"broker", "bootstrap", "sqs_endpoint"} & set(request.fixturenames):
        request.getfixturevalue("broker").next_turn()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the shared node."""
    if OUTSIDE_BOOTSTRAP:
        return OUTSIDE_BOOTSTRAP
    address: str = request.getfixturevalue("broker").bootstrap
    return address


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes of one's own."""
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start nodes of one's own: `start_broker({"topics.partitions": 4})`."""
    if OUTSIDE_BOOTSTRAP:
        pytest.skip("starts a node of its own")
    nodes: list[Broker] = []

    def start(
        settings: dict[str, object] | None = None, *, directory: Path | None = None
    ) -> Broker:
        home = directory or tmp_path / f"node-{len(nodes)}"
        home.mkdir(exist_ok=True)
        node = NODE(home, settings or {})
        nodes.append(node)
        node.start()
        return node

    yield start
    for node in nodes:
        node.close()


@pytest.fixture(scope="session")
def copies(bootstrap: str) -> int:
    """How many copies a topic has whose creator does not say."""
    return len(bootstrap.split(","))


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """A confluent-kafka admin client of the shared node."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name that no other test and no other run has."""
    claim: str = request.node.originalname.removeprefix("test_")
    return f"{claim[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def new_topic(admin: AdminClient, unique: str) -> Iterator[NewTopicName]:
    """Create topics on the shared node: `new_topic(partitions=3, **{"cleanup.policy": ...})`."""
    names: list[str] = []

    def create(partitions: int = 1, **config: str) -> str:
        name = f"{unique}-{len(names)}"
        names.append(name)
        create_topic(admin, name, partitions=partitions, **config)
        return name

    yield create
    if names:
        for future in admin.delete_topics(names).values():
            future.exception()


@pytest.fixture
def topic(new_topic: NewTopicName) -> str:
    """A topic of one partition on the shared node."""
    return new_topic()


@pytest.fixture
def group(unique: str) -> str:
    """A group id nobody else uses."""
    return f"group-{unique}"


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    """Each of the client libraries in turn, on the shared node."""
    made: Client = request.param(bootstrap)
    return made


@pytest.fixture
def sqs_endpoint(request: pytest.FixtureRequest) -> str:
    """Where the shared node speaks SQS."""
    if OUTSIDE_SQS:
        return OUTSIDE_SQS
    if NODE is KafkaPeer:
        pytest.skip("Apache Kafka does not speak SQS")
    endpoint: str = request.getfixturevalue("broker").sqs
    return endpoint


@pytest.fixture(params=PROTOCOLS)
def sqs(request: pytest.FixtureRequest, sqs_endpoint: str) -> Any:
    """boto3 on the shared node, in each protocol in turn."""
    return connect(sqs_endpoint, protocol=request.param)


@pytest.fixture
def new_queue(sqs: Any, unique: str) -> Iterator[NewQueue]:
    """Create queues on the shared node: `new_queue({"DelaySeconds": "1"}, is_fifo=True)`."""
    made: list[str] = []

    def create(attributes: Mapping[str, str] | None = None, *, is_fifo: bool = False) -> Queue:
        suffix = ".fifo" if is_fifo else ""
        wanted = {"FifoQueue": "true"} if is_fifo else {}
        answer = sqs.create_queue(
            QueueName=f"{unique}-{len(made)}{suffix}", Attributes=wanted | {**(attributes or {})}
        )
        made.append(answer["QueueUrl"])
        return Queue(sqs, answer["QueueUrl"])

    yield create
    for url in made:
        with suppress(sqs.exceptions.QueueDoesNotExist):
            sqs.delete_queue(QueueUrl=url)


@pytest.fixture
def queue(new_queue: NewQueue) -> Queue:
    """A standard queue as SQS makes it when nothing is said about it."""
    return new_queue()
