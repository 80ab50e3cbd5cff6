"""Coordinators and stream groups: members, their sessions and committed offsets."""

from __future__ import annotations

from goqueue.model.errors.base import GoQueueError


class InvalidGroupId(GoQueueError):
    code = "invalid_group_id"


class UnknownGroup(GoQueueError):
    code = "unknown_group"

    def __init__(self, group: str) -> None:
        super().__init__(f"Group {group!r} does not exist.")


class GroupNotEmpty(GoQueueError):
    code = "group_not_empty"

    def __init__(self, group: str) -> None:
        super().__init__(f"Group {group!r} has members; stop them first.")


class GroupSubscribedToTopic(GoQueueError):
    code = "group_subscribed_to_topic"


class CoordinatorNotAvailable(GoQueueError):
    code = "coordinator_not_available"
    retryable = True


class CoordinatorLoading(GoQueueError):
    code = "coordinator_loading"
    retryable = True


class NotCoordinator(GoQueueError):
    code = "not_coordinator"
    retryable = True


class UnknownMember(GoQueueError):
    code = "unknown_member"

    def __init__(self, group: str, member: str) -> None:
        super().__init__(f"Group {group!r} has no member {member!r}; join again.")


class MemberIdRequired(GoQueueError):
    """A first join is answered with an id; the member joins again with it."""

    code = "member_id_required"
    retryable = True

    def __init__(self, member: str) -> None:
        self.member_id = member
        super().__init__(f"Join again with the member id {member!r}.")


class FencedInstance(GoQueueError):
    code = "fenced_instance"


class UnreleasedInstance(GoQueueError):
    code = "unreleased_instance"
    retryable = True


class IllegalGeneration(GoQueueError):
    code = "illegal_generation"


class RebalanceInProgress(GoQueueError):
    code = "rebalance_in_progress"
    retryable = True


class InconsistentProtocol(GoQueueError):
    code = "inconsistent_protocol"


class InvalidSessionTimeout(GoQueueError):
    code = "invalid_session_timeout"


class FencedMemberEpoch(GoQueueError):
    code = "fenced_member_epoch"


class StaleMemberEpoch(GoQueueError):
    code = "stale_member_epoch"
    retryable = True


class UnsupportedAssignor(GoQueueError):
    code = "unsupported_assignor"


class InvalidRegularExpression(GoQueueError):
    code = "invalid_regular_expression"


class GroupFull(GoQueueError):
    code = "group_full"


class OffsetMetadataTooLarge(GoQueueError):
    code = "offset_metadata_too_large"


class GroupKindMismatch(GoQueueError):
    """A name belongs to a stream group or to a queue group, never to both."""

    code = "group_kind_mismatch"

    def __init__(self, group: str, *, is_queue: bool) -> None:
        kind, other = ("queue", "stream") if is_queue else ("stream", "queue")
        super().__init__(
            f"Group {group!r} is a {kind} group; choose another name for a {other} group, or "
            "delete this one first."
        )


class InvalidGroupSettings(GoQueueError):
    code = "invalid_group_settings"
    problem = ""  # the setting that cannot be decoded and why, as the decoder reports it
