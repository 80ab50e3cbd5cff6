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


class RequestTimedOut(GoQueueError):
    code = "request_timed_out"
    retryable = True


class LimitReached(GoQueueError):
    """There are as many topics, partitions or groups as the broker's settings allow."""

    code = "limit_reached"


class UnknownFetchSession(GoQueueError):
    code = "unknown_fetch_session"
    retryable = True


class InvalidFetchSessionEpoch(GoQueueError):
    code = "invalid_fetch_session_epoch"
    retryable = True
