"""Where the replicas of a partition are."""

from __future__ import annotations

from typing import NamedTuple


class Placement(NamedTuple):
    """The nodes that keep a partition, and the one that leads it."""

    leader: int  # -1 while nobody can lead
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
