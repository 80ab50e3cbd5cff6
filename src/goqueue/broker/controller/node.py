"""A node as a member of a cluster: what it runs on, and what identifies it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from uuid import UUID

from goqueue.cluster.facts import NodeFact
from goqueue.cluster.metadata import Metadata
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Peers
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed_or_refuse, write_framed

_DISK_FILE = "meta/disk"
_DISK_MAGIC = b"GQDK"
_DISK_VERSION = 1


@dataclass(frozen=True, slots=True)
class Environment:
    """What a node runs on: its disk, its clock, the other nodes, and a source of random numbers."""

    disk: Disk
    clock: Clock
    peers: Peers
    random: Random

    def new_id(self) -> bytes:
        return new_id(self.random)


def new_id(random: Random) -> bytes:
    """Return sixteen random bytes, as used for ids of topics, disks and incarnations."""
    return UUID(int=random.getrandbits(128), version=4).bytes


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """A node in one run of its process."""

    id: int
    disk: bytes  # created with the data; shows whether a disk was replaced
    incarnation: bytes  # new at every start; shows whether a node has restarted

    def registration(self, metadata: Metadata) -> NodeFact | None:
        """Return the registration of this incarnation; None if there is none."""
        fact = metadata.nodes.get(self.id)
        return fact if fact is not None and fact.incarnation == self.incarnation else None

    def is_trusted(self, metadata: Metadata) -> bool:
        """Return whether this incarnation is registered and not fenced."""
        fact = self.registration(metadata)
        return fact is not None and not fact.is_fenced


def identify_disk(disk: Disk, new_id: Callable[[], bytes]) -> bytes:
    """Return the id created with the data, by which a replaced disk is detected."""
    known = read_framed_or_refuse(
        disk,
        _DISK_FILE,
        magic=_DISK_MAGIC,
        version=_DISK_VERSION,
        body=bytes,
        remedy="Restore the file, or remove it: the node then joins like one with a new disk.",
    )
    return rename_disk(disk, new_id) if known is None else known


def rename_disk(disk: Disk, new_id: Callable[[], bytes]) -> bytes:
    """Create another disk id, because promises made with this disk are lost."""
    disk_id = new_id()
    write_framed(disk, _DISK_FILE, magic=_DISK_MAGIC, version=_DISK_VERSION, body=disk_id)
    return disk_id
