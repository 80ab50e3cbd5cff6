"""Requests that no room can answer, whatever they are about; invalid settings of a node."""

from __future__ import annotations

from goqueue.model.errors.base import GoQueueError


class InvalidSettings(GoQueueError):
    """The settings of a node are inconsistent; `problems` lists every fault at once."""

    code = "invalid_settings"

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class InvalidRequest(GoQueueError):
    code = "invalid_request"


class MalformedRequest(GoQueueError):
    """Bytes that do not follow their protocol."""

    code = "malformed_request"


class RequestTooLarge(MalformedRequest):
    code = "request_too_large"


class UnsupportedVersion(GoQueueError):
    code = "unsupported_version"

    @classmethod
    def of_record(cls, what: str, *, version: int, known: int) -> UnsupportedVersion:
        """Return the error for a stored record of a later release, which must not be skipped."""
        return cls(
            f"{what} has version {version}, and this node supports versions up to {known}; "
            "upgrade this node."
        )


class RequestTimedOut(GoQueueError):
    code = "request_timed_out"
    retryable = True


class MetricsDisabled(GoQueueError):
    """The settings of the node switch its metrics off."""

    code = "metrics_disabled"

    def __init__(self) -> None:
        super().__init__("This node has no metrics; set metrics.enabled and restart it.")


class LimitReached(GoQueueError):
    """There are as many topics, partitions or groups as the broker's settings allow."""

    code = "limit_reached"


class UnknownFetchSession(GoQueueError):
    code = "unknown_fetch_session"
    retryable = True


class InvalidFetchSessionEpoch(GoQueueError):
    code = "invalid_fetch_session_epoch"
    retryable = True


class UnknownShareSession(GoQueueError):
    code = "unknown_share_session"
    retryable = True


class InvalidShareSessionEpoch(GoQueueError):
    code = "invalid_share_session_epoch"
    retryable = True


class ShareSessionLimitReached(GoQueueError):
    code = "share_session_limit_reached"
    retryable = True


class UnknownReport(GoQueueError):
    code = "unknown_report"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no report {name[:200]!r} that can be read; the list of reports shows those "
            "there are."
        )
