"""The placement of a partition's replicas."""

from __future__ import annotations

from typing import NamedTuple


class Placement(NamedTuple):
    """The nodes that store a partition, and its leader."""

    leader: int  # -1 while there is none
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
