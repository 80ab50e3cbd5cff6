"""A data folder keeps the id of its cluster."""

from __future__ import annotations

import pytest

from goqueue.broker.controller.formation import belongs_to_cluster
from goqueue.broker.controller.identity import cluster_id_of
from goqueue.config import NodeSettings
from goqueue.model.errors import StorageFailed
from tests.simulation.disk import SimulatedDisk


def cluster_id(disk: SimulatedDisk, unique: bytes, configured: str | None = None) -> str:
    settings = NodeSettings() if configured is None else NodeSettings(cluster_id=configured)
    return cluster_id_of(disk, settings, new_id=lambda: unique * 16)


def test_a_folder_keeps_its_first_cluster_id() -> None:
    disk = SimulatedDisk(1)
    first = cluster_id(disk, b"1")
    assert cluster_id(disk, b"2") == first


def test_an_identity_that_cannot_be_read_is_no_new_cluster() -> None:
    disk = SimulatedDisk(1)
    first = cluster_id(disk, b"1")
    disk.replace_whole("meta/node", disk.read_whole("meta/node")[:-1])
    with pytest.raises(StorageFailed, match=r"meta/node is damaged\..*node\.cluster_id"):
        cluster_id(disk, b"2")
    disk.remove("meta/node")
    assert cluster_id(disk, b"2", configured=first) == first, "what the error says to do"


def test_a_member_whose_state_cannot_be_read_is_not_taken_for_a_single_node() -> None:
    disk = SimulatedDisk(1)
    assert not belongs_to_cluster(disk)
    disk.replace_whole("meta/forming", b"damaged")
    with pytest.raises(StorageFailed, match="meta/forming is damaged"):
        belongs_to_cluster(disk)
