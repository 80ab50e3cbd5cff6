"""A node with an SQS listener, and boto3 in both protocols."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.world import World
from tests.unit.wire.sqs.client import Node


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def node(world: World) -> Node:
    return Node(world)


@pytest.fixture(params=["json", "query"])
def sqs(request: pytest.FixtureRequest, node: Node) -> Any:
    """boto3, once in each protocol."""
    return node.boto3(request.param)
