"""A node is known by its id, its disk and its present run."""

from __future__ import annotations

import random

import pytest

from goqueue.broker.controller.node import NodeIdentity, identify_disk, new_id, rename_disk
from goqueue.cluster.facts import NodeFact
from goqueue.cluster.metadata import Metadata
from goqueue.model.errors import StorageFailed
from tests.simulation.disk import SimulatedDisk

ME = NodeIdentity(3, disk=b"disk", incarnation=b"now")


def metadata_with(*facts: NodeFact) -> Metadata:
    metadata = Metadata()
    metadata.apply_all(facts)
    return metadata


def test_a_node_without_a_registration_is_not_trusted() -> None:
    others = metadata_with(NodeFact(4, b"now", {}, is_fenced=False))
    assert ME.registration(others) is None
    assert not ME.is_trusted(others)


def test_the_registration_of_an_earlier_run_does_not_count() -> None:
    before = metadata_with(NodeFact(3, b"before", {}, is_fenced=False))
    assert ME.registration(before) is None
    assert not ME.is_trusted(before)


def test_a_registered_node_is_trusted_once_it_is_not_fenced() -> None:
    fenced, free = NodeFact(3, b"now", {}), NodeFact(3, b"now", {}, is_fenced=False)
    assert ME.registration(metadata_with(fenced)) == fenced
    assert not ME.is_trusted(metadata_with(fenced))
    assert ME.is_trusted(metadata_with(free))


def test_a_disk_keeps_its_id_until_it_is_renamed() -> None:
    disk, chance = SimulatedDisk(1), random.Random(1)
    first = identify_disk(disk, lambda: new_id(chance))
    assert identify_disk(disk, lambda: new_id(chance)) == first
    second = rename_disk(disk, lambda: new_id(chance))
    assert second != first
    assert identify_disk(disk, lambda: new_id(chance)) == second


def test_a_disk_id_that_cannot_be_read_is_no_new_disk() -> None:
    disk, chance = SimulatedDisk(1), random.Random(1)
    identify_disk(disk, lambda: new_id(chance))
    disk.replace_whole("meta/disk", disk.read_whole("meta/disk")[:-1])
    with pytest.raises(StorageFailed, match="meta/disk is damaged"):
        identify_disk(disk, lambda: new_id(chance))
