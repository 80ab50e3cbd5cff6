"""A node with a gRPC listener, shared by tests that keep apart by names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.integration.process import Broker

from .calls import LISTENER, Rpc


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"groups.initial_rebalance_delay_ms": 0, **LISTENER}
    node = Broker(tmp_path_factory.mktemp("grpc"), settings)
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture
def rpc(node: Broker) -> Iterator[Rpc]:
    with Rpc(node.grpc) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
