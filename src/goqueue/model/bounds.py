"""How large the numbers may be that nodes tell each other, and that a cluster writes down.

They are checked where bytes become values. Each bound is far beyond what any cluster comes to, and
far enough below what can be stored that what is counted on from it can be stored and read too.
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
Offset = Annotated[int, Meta(ge=-1, le=1 << 62)]  # -1 stands for none
VERSION_MAX = 1 << 48
Version = Annotated[int, Meta(ge=0, le=VERSION_MAX)]  # of something that changes
Milliseconds = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
BytesPerSecond = Annotated[int, Meta(ge=0, le=_INT63)]  # Kafka's tools say "no limit" with the last

TopicId = Annotated[bytes, Meta(max_length=16)]
Identity = Annotated[bytes, Meta(max_length=64)]  # of a disk, or of one life of a node
Name = Annotated[str, Meta(max_length=1_024)]
Addresses = Annotated[dict[Name, Name], Meta(max_length=32)]
