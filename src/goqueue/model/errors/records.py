"""Records and batches, their producers, and the disks that they are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.errors.base import GoQueueError, RecordFaults

if TYPE_CHECKING:
    from goqueue.model.names import TopicPartition


class InvalidRecord(RecordFaults, GoQueueError):
    """A record that breaks a rule of its topic or of the format; the batch was not stored."""

    code = "invalid_record"


class InvalidAttribute(GoQueueError):
    """A header that requests something (a delay, a priority) with an invalid value."""

    code = "invalid_attribute"


class CorruptBatch(GoQueueError):
    """A batch whose bytes do not match its checksum, on the wire or on disk."""

    code = "corrupt_batch"
    position: int = -1  # where in its file, if it was found on disk
    next_offset: int | None = None  # the first readable offset after it, if any
    is_in_all_copies: bool = False  # its checksum is valid, so no other replica is any better


class UnpacksTooLarge(CorruptBatch):
    """A compressed batch that would decompress to more bytes than allowed."""

    code = "unpacks_too_large"
    is_in_all_copies = True

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"A compressed batch unpacks to more than {bytes_max} bytes (setting "
            "topics.unpacked_bytes_max); send smaller batches."
        )


class RecordTooLarge(GoQueueError):
    code = "record_too_large"


class InvalidTimestamp(RecordFaults, GoQueueError):
    code = "invalid_timestamp"


class UnsupportedFormat(GoQueueError):
    code = "unsupported_format"


class UnsupportedCompression(GoQueueError):
    code = "unsupported_compression"


class OffsetOutOfRange(GoQueueError):
    code = "offset_out_of_range"

    def __init__(self, partition: TopicPartition, offset: int, *, start: int, end: int) -> None:
        super().__init__(
            f"Offset {offset} of {partition} is not available; offsets {start} to {end} are."
        )


class OutOfOrderSequence(GoQueueError):
    code = "out_of_order_sequence"


class DuplicateSequence(GoQueueError):
    """The batch was stored before, too long ago to return its offset again."""

    code = "duplicate_sequence"


class UnknownProducer(GoQueueError):
    code = "unknown_producer"


class FencedProducer(GoQueueError):
    code = "fenced_producer"


class NotEnoughReplicas(GoQueueError):
    code = "not_enough_replicas"
    retryable = True


class StorageFull(GoQueueError):
    code = "storage_full"
    retryable = True


class StorageFailed(GoQueueError):
    """The disk refused to write or to sync; the partition is closed for writing."""

    code = "storage_failed"
    retryable = True
