"""Queue groups, named queues, redrives of dead letters, and schedules."""

from __future__ import annotations

from goqueue.model.errors.base import GoQueueError


class QueueExists(GoQueueError):
    """A named queue of that name has other attributes."""

    code = "queue_exists"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"A queue named {name!r} exists with other attributes; change those, or choose "
            "another name."
        )


class UnknownQueue(GoQueueError):
    code = "unknown_queue"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no queue named {name!r}; create it first.")


class QueueDeletedRecently(GoQueueError):
    """A queue of that name was deleted a moment ago, and the name cannot be used yet."""

    code = "queue_deleted_recently"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"A queue named {name!r} was deleted a moment ago; create it again a minute later."
        )


class PurgeInProgress(GoQueueError):
    """A named queue was purged a moment ago."""

    code = "purge_in_progress"

    def __init__(self, name: str) -> None:
        super().__init__(f"Queue {name!r} was purged a moment ago; purge it again later.")


class DeduplicationFull(GoQueueError):
    """The limit of stored deduplication ids is reached."""

    code = "deduplication_full"
    retryable = True

    def __init__(self, ids_max: int) -> None:
        super().__init__(
            f"This node stores {ids_max} deduplication ids, its limit; retry when the oldest have "
            "expired."
        )


class LeaseTooLong(GoQueueError):
    """A message may be leased for a limited total time, however often its lease is extended."""

    code = "lease_too_long"

    def __init__(self, total_ms_max: int) -> None:
        super().__init__(
            f"The message would be leased for more than {total_ms_max} ms in total; settle it, or "
            "let it be delivered again."
        )


class InvalidReceipt(GoQueueError):
    code = "invalid_receipt"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The receipt is not valid: {reason}. Send the receipt exactly as it was received."
        )


class StaleReceipt(GoQueueError):
    """The message is no longer leased under the receipt; nothing was changed."""

    code = "stale_receipt"

    def __init__(self) -> None:
        super().__init__(
            "The message is no longer leased under this receipt: it was settled, its lease "
            "expired, or the group was rewound. If it is not done, it will be delivered again."
        )


class InvalidRecordState(GoQueueError):
    """A member of a share group does not hold a record that it acknowledged."""

    code = "invalid_record_state"

    def __init__(self, offset: int) -> None:
        super().__init__(
            f"The record at offset {offset} is not held by this member: it was settled, its lock "
            "expired, or the group was reset. If it is not done, it will be delivered again."
        )


class DeadLettering(GoQueueError):
    """The message is being moved to the dead-letter topic, and is not there yet."""

    code = "dead_lettering"
    retryable = True

    def __init__(self) -> None:
        super().__init__("The message is being moved to the dead-letter topic; retry.")


class CorruptDeliveryState(GoQueueError):
    """A record of the delivery journal that cannot be read."""

    code = "corrupt_delivery_state"


class CorruptJourney(GoQueueError):
    """A record of the journal of journeys that cannot be read."""

    code = "corrupt_journey"


class UnknownRedrive(GoQueueError):
    code = "unknown_redrive"

    def __init__(self, topic: str, redrive_id: str) -> None:
        super().__init__(
            f"No redrive of the dead letters of {topic!r} has the id {redrive_id[:100]!r}; the "
            "list of redrives shows those there are."
        )


class RedriveActive(GoQueueError):
    code = "redrive_active"

    def __init__(self, topic: str, redrive_id: str) -> None:
        super().__init__(
            f"Redrive {redrive_id} of {topic!r} has not ended; wait for it, or cancel it first."
        )


class RedriveEnded(GoQueueError):
    code = "redrive_ended"

    def __init__(self, redrive_id: str, state: str) -> None:
        super().__init__(f"Redrive {redrive_id} has ended ({state}); start a new one.")


class UnknownSchedule(GoQueueError):
    code = "unknown_schedule"

    def __init__(self, schedule_id: str) -> None:
        super().__init__(
            f"No message is scheduled as {schedule_id[:100]!r}; it was cancelled or released, or "
            "the id is wrong."
        )


class ScheduleReleased(GoQueueError):
    """Too late: the message is in its topic, or in flight to it."""

    code = "schedule_released"

    def __init__(self, schedule_id: str) -> None:
        super().__init__(
            f"The message scheduled as {schedule_id!r} has been released to its topic and can no "
            "longer be changed."
        )
