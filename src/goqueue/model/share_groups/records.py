"""Records that members hold, what they report about them, and where a group is."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from goqueue.model.errors import GoQueueError
from goqueue.model.tenants import GroupName, Text, TopicName

NOT_STARTED = -1
UNKNOWN_LAG = -1


class AckType(IntEnum):
    """What a member reports about a record that it holds."""

    GAP = 0  # the log has no such record
    ACCEPT = 1
    RELEASE = 2  # deliver it again
    REJECT = 3  # it can never be processed
    RENEW = 4  # keep it longer


class AckBatch(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of the records from `first` to `last`: one for all, or one for each offset."""

    first: int
    last: int
    types: bytes


class ShareAcks(msgspec.Struct, frozen=True, array_like=True):
    """What a member reports about records of one partition; it is applied as a whole or not."""

    topic: TopicName
    partition: int
    batches: tuple[AckBatch, ...]


class PartitionOutcome(msgspec.Struct, frozen=True, array_like=True):
    """Whether what was requested of a partition succeeded."""

    topic: TopicName
    partition: int
    error: GoQueueError | None = None


class ShareWanted(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a member reads."""

    topic: TopicName
    partition: int


class AcquiredRange(msgspec.Struct, frozen=True, array_like=True):
    """Records that a member holds now. The delivery count includes this delivery."""

    first: int
    last: int
    delivery_count: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


class ShareFetch(msgspec.Struct, frozen=True, array_like=True):
    """A request for records of partitions that one node leads; acknowledgements come first."""

    group_id: GroupName
    member_id: Text
    wanted: tuple[ShareWanted, ...]
    acks: tuple[ShareAcks, ...] = ()
    wait_ms: int = 0
    bytes_max: int = 50 << 20
    records_max: int = 500
    is_record_limited: bool = False  # never more than `records_max`, even within a batch
    batch_records: int = 0  # longer ranges are split; 0: never
    is_new_session: bool = False  # what the member held in these partitions is returned first
    session_id: int = 0  # of the member at the leader; unique, or 0 if it is not known


class ShareLeased(msgspec.Struct, frozen=True, array_like=True):
    """Records of one partition that a member holds now."""

    topic: TopicName
    partition: int
    ranges: tuple[AcquiredRange, ...]
    next_offset: int  # from where the group continues with new records


class ShareUnsent(msgspec.Struct, frozen=True, array_like=True):
    """Ranges (first, last) of one partition that were leased to a member and not sent to it."""

    topic: TopicName
    partition: int
    ranges: tuple[tuple[int, int], ...]


class ShareExchange(msgspec.Struct, frozen=True, array_like=True):
    """What the owner of a group answers to a request for records."""

    lock_ms: int
    waited_ms: int  # from the arrival of the request until records were leased
    leased: tuple[ShareLeased, ...]
    acked: tuple[PartitionOutcome, ...] = ()
    failed: tuple[PartitionOutcome, ...] = ()  # wanted partitions that cannot be read


class ShareAcknowledge(msgspec.Struct, frozen=True, array_like=True):
    """Acknowledgements without a request for records."""

    group_id: GroupName
    member_id: Text
    acks: tuple[ShareAcks, ...]


class ShareOffset(msgspec.Struct, frozen=True, array_like=True):
    """Where a group is in a partition: everything before `start_offset` is done."""

    topic: TopicName
    partition: int
    start_offset: int = NOT_STARTED
    lag: int = UNKNOWN_LAG
    error: GoQueueError | None = None
