"""A node, and a client of the front end that shows most of what the carrier does."""

from __future__ import annotations

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client


@pytest.fixture
def world() -> World:
    return World(groups__initial_rebalance_delay_ms="0")


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)
