"""Authentication, access control and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.errors.base import GoQueueError

if TYPE_CHECKING:
    from goqueue.model.access import Action, Resource


class AccessDenied(GoQueueError):
    """A session may not do something. If `is_hidden`, it may not even see that the resource exists.

    Front ends whose protocols can, answer the latter as if the resource did not exist.
    """

    code = "access_denied"

    def __init__(
        self, principal: str, action: Action, resource: Resource, *, is_hidden: bool = False
    ) -> None:
        self.kind: str = resource.kind.value
        self.name = resource.name
        self.is_hidden = is_hidden
        super().__init__(f"{principal} may not {action} {resource}; request that permission.")


class InvalidAcl(GoQueueError):
    """A rule that cannot be stored, because it could never apply."""

    code = "invalid_acl"


class InvalidRole(GoQueueError):
    code = "invalid_role"


class AuthenticationRequired(GoQueueError):
    code = "authentication_required"

    def __init__(self) -> None:
        super().__init__("This listener requires authentication; send credentials.")


class AuthenticationFailed(GoQueueError):
    """The text does not reveal which part of the credentials is wrong."""

    code = "authentication_failed"

    def __init__(self, text: str = "The credentials are not valid.") -> None:
        super().__init__(text)


class TooManyFailures(AuthenticationFailed):
    """An address or a user has failed too often, and has to wait."""

    code = "too_many_authentication_failures"
    retryable = True
    beginning = "Too many failed attempts"  # by which clients recognise it: Kafka has one code

    def __init__(self, wait_ms: int) -> None:
        self.wait_ms = wait_ms
        seconds = (wait_ms + 999) // 1000
        super().__init__(f"{self.beginning}; try again in {seconds} s.")


class InvalidCredential(GoQueueError):
    """A user name, password or verifier that cannot be stored."""

    code = "invalid_credential"


class UnknownUser(GoQueueError):
    code = "unknown_user"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no user {name!r}.")


class UnknownCredential(GoQueueError):
    code = "unknown_credential"

    def __init__(self, name: str) -> None:
        super().__init__(f"User {name!r} has no credential of this kind.")


class UserExists(GoQueueError):
    code = "user_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is already a user {name!r}.")


class UnknownKey(GoQueueError):
    code = "unknown_key"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"There is no key {key_id!r}.")


class KeyExists(GoQueueError):
    code = "key_exists"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"There is already a key {key_id!r}.")


class UnknownRole(GoQueueError):
    code = "unknown_role"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no role {name!r}.")


class QuotaExceeded(GoQueueError):
    """A client has used up a rate for now; `wait_ms` says when it may try again."""

    code = "quota_exceeded"
    retryable = True

    def __init__(self, limit: str, per_second: int, wait_ms: int) -> None:
        self.limit = limit
        self.per_second = per_second
        self.wait_ms = wait_ms
        super().__init__(f"The quota {limit} is used up; try again in {wait_ms} ms.")


class QuotaReached(GoQueueError):
    """A tenant or a user has as many of something as its quota allows."""

    code = "quota_reached"

    def __init__(self, limit: str, most: int) -> None:
        self.limit = limit
        super().__init__(
            f"The quota {limit} allows {most}, which are there; delete some, or request more."
        )


class StorageQuotaReached(QuotaReached):
    """A tenant stores as many bytes as its quota allows."""

    code = "storage_quota_reached"

    def __init__(self, limit: str, most: int) -> None:
        super().__init__(limit, most)
        self.args = (
            f"The quota {limit} allows {most} bytes, which are stored; delete records or topics, "
            "shorten their retention, or request more.",
        )


class InFlightQuotaReached(QuotaReached):
    """Consumers of a tenant have leased as many messages as its quota allows."""

    code = "in_flight_quota_reached"
    retryable = True

    def __init__(self, limit: str, most: int) -> None:
        super().__init__(limit, most)
        self.args = (
            f"The quota {limit} allows {most}, which are leased; acknowledge some of them first.",
        )


class InvalidQuota(GoQueueError):
    """An entity, a limit or a value that cannot be."""

    code = "invalid_quota"
