"""Bounds of the numbers that nodes send each other, and that a cluster persists.

They are checked on decoding. Each bound is far beyond what any cluster reaches, and far enough
below the storage limit that numbers counted up from it can also be stored and decoded.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

_INT63 = (1 << 63) - 1

NodeId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
NodeIdOrNone = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
NodeIds = Annotated[tuple[NodeId, ...], Meta(max_length=1_000)]
PartitionNumber = Annotated[int, Meta(ge=0, le=1 << 24)]
PartitionCount = Annotated[int, Meta(ge=0, le=1 << 24)]
# A leader epoch is stored in four bytes of every batch, a producer epoch in two.
LeaderEpoch = Annotated[int, Meta(ge=-1, le=1 << 30)]
ProducerEpoch = Annotated[int, Meta(ge=-1, le=(1 << 15) - 1)]
ProducerId = Annotated[int, Meta(ge=-1, le=1 << 62)]
Offset = Annotated[int, Meta(ge=-1, le=1 << 62)]  # -1 means none
VERSION_MAX = 1 << 48
Version = Annotated[int, Meta(ge=0, le=VERSION_MAX)]  # of something that changes
Milliseconds = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
BytesPerSecond = Annotated[int, Meta(ge=0, le=_INT63)]  # Kafka's tools send the maximum for none

TopicId = Annotated[bytes, Meta(max_length=16)]
Identity = Annotated[bytes, Meta(max_length=64)]  # of a disk, or of one run of a node
Name = Annotated[str, Meta(max_length=1_024)]
Addresses = Annotated[dict[Name, Name], Meta(max_length=32)]
