"""The errors of SQS, and the table that maps our errors to them.

Each has two codes: that of the JSON protocol, and that of the older Query protocol, which JSON
responses repeat in a header because existing programs check it.
"""

from __future__ import annotations

from typing import ClassVar

from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import HttpError, status_of

_SERVICE = "com.amazonaws.sqs#"
_PLATFORM = "com.amazon.coral.service#"
_QUERY = "AWS.SimpleQueueService."


class SqsError(GoQueueError):
    """An error in the terms of SQS."""

    code = "sqs"
    name: ClassVar[str]  # in JSON
    query_name: ClassVar[str]
    status: ClassVar[int] = 400
    space: ClassVar[str] = _SERVICE

    @property
    def is_of_sender(self) -> bool:
        return self.status < 500

    @property
    def query_text(self) -> str:
        """The text in the Query protocol, if it differs."""
        return str(self)


class QueueDoesNotExist(SqsError):
    name, query_name = "QueueDoesNotExist", _QUERY + "NonExistentQueue"

    def __init__(self) -> None:
        super().__init__("The specified queue does not exist.")

    @property
    def query_text(self) -> str:
        return "The specified queue does not exist for this wsdl version."


class QueueNameExists(SqsError):
    name, query_name = "QueueNameExists", "QueueAlreadyExists"

    def __init__(self, attribute: str) -> None:
        super().__init__(
            "A queue already exists with the same name and a different value for attribute "
            f"{attribute}"
        )


class ReceiptHandleIsInvalid(SqsError):
    name = query_name = "ReceiptHandleIsInvalid"

    def __init__(self, receipt: str = "") -> None:
        super().__init__(
            f'The input receipt handle "{receipt[:100]}" is not a valid receipt handle.'
        )


class MessageNotInflight(SqsError):
    name, query_name = "MessageNotInflight", _QUERY + "MessageNotInflight"

    def __init__(self) -> None:
        super().__init__("The message is not in flight any more; receive it again.")


class InvalidParameterValue(SqsError):
    name, query_name = "InvalidParameterValueException", "InvalidParameterValue"

    @classmethod
    def of(cls, parameter: str, value: object, reason: str) -> InvalidParameterValue:
        """The wording of SQS for an invalid parameter."""
        shown = str(value)[:200]
        return cls(f"Value {shown} for parameter {parameter} is invalid. Reason: {reason}")


class MissingParameter(SqsError):
    name, query_name = "MissingRequiredParameterException", "MissingParameter"

    def __init__(self, parameter: str) -> None:
        super().__init__(f"The request must contain the parameter {parameter}.")


class InvalidAttributeName(SqsError):
    name = query_name = "InvalidAttributeName"

    def __init__(self, attribute: str, text: str = "") -> None:
        super().__init__(text or f"Unknown Attribute {attribute[:100]}.")


class InvalidAttributeValue(SqsError):
    name = query_name = "InvalidAttributeValue"

    def __init__(self, attribute: str, reason: str = "") -> None:
        more = f" Reason: {reason}" if reason else ""
        super().__init__(f"Invalid value for the parameter {attribute}.{more}")


class InvalidMessageContents(SqsError):
    name = query_name = "InvalidMessageContents"


class UnsupportedOperation(SqsError):
    name, query_name = "UnsupportedOperation", _QUERY + "UnsupportedOperation"


class PolicyNotSupported(UnsupportedOperation):
    """Policies of queues would have no effect, so they are refused rather than stored."""

    def __init__(self) -> None:
        super().__init__(
            "Queue policies are not supported. Access to a queue is granted by access control "
            "lists, for example `goqueue acl create --allow User:NAME --action WRITE --topic "
            "QUEUE`; see docs/security/access-control.md."
        )


class EmptyBatchRequest(SqsError):
    name, query_name = "EmptyBatchRequest", _QUERY + "EmptyBatchRequest"

    def __init__(self, entry: str) -> None:
        super().__init__(f"There should be at least one {entry} in the request.")


class TooManyEntriesInBatchRequest(SqsError):
    name, query_name = "TooManyEntriesInBatchRequest", _QUERY + "TooManyEntriesInBatchRequest"

    def __init__(self, count: int, most: int) -> None:
        super().__init__(
            f"Maximum number of entries per request are {most}. You have sent {count}."
        )


class BatchEntryIdsNotDistinct(SqsError):
    name, query_name = "BatchEntryIdsNotDistinct", _QUERY + "BatchEntryIdsNotDistinct"

    def __init__(self, entry_id: str) -> None:
        super().__init__(f"Id {entry_id} repeated.")


class InvalidBatchEntryId(SqsError):
    name, query_name = "InvalidBatchEntryId", _QUERY + "InvalidBatchEntryId"

    def __init__(self) -> None:
        super().__init__(
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            "It can be at most 80 letters long."
        )


class BatchRequestTooLong(SqsError):
    name, query_name = "BatchRequestTooLong", _QUERY + "BatchRequestTooLong"

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            f"Batch requests cannot be longer than {most} bytes. You have sent {size} bytes."
        )


class PurgeQueueInProgress(SqsError):
    name, query_name = "PurgeQueueInProgress", _QUERY + "PurgeQueueInProgress"
    status = 403

    def __init__(self, queue: str) -> None:
        super().__init__(f"Only one PurgeQueue operation on {queue} is allowed every 60 seconds.")


class QueueDeletedRecently(SqsError):
    name, query_name = "QueueDeletedRecently", _QUERY + "QueueDeletedRecently"

    def __init__(self) -> None:
        super().__init__(
            "You must wait 60 seconds after deleting a queue before you can create another with "
            "the same name."
        )


class OverLimit(SqsError):
    name = query_name = "OverLimit"
    status = 403


class ResourceNotFound(SqsError):
    name = query_name = "ResourceNotFoundException"
    status = 404


class AccessDenied(SqsError):
    name, query_name = "AccessDeniedException", "AccessDenied"
    status = 403


# Errors before a request reaches an action


class InvalidAction(SqsError):
    name, query_name, space = "UnknownOperationException", "InvalidAction", _PLATFORM

    def __init__(self, action: str) -> None:
        super().__init__(f"The action {action[:100]} is not valid for this endpoint.")


class InvalidAddress(SqsError):
    name = query_name = "InvalidAddress"


class UnknownOperation(SqsError):
    """A request without an action, as sent by a browser."""

    name, query_name, space = "UnknownOperationException", "UnknownOperationException", _PLATFORM
    status = 404

    def __init__(self) -> None:
        super().__init__("Name an action in the parameter Action.")


class MissingAction(SqsError):
    name, query_name, space = "UnknownOperationException", "MissingAction", _PLATFORM

    def __init__(self) -> None:
        super().__init__("The request must contain the parameter Action.")


class MalformedInput(SqsError):
    """A body that cannot be decoded."""

    name, query_name, space = "SerializationException", "MalformedInput", _PLATFORM


class MissingAuthentication(SqsError):
    name, query_name = "MissingAuthenticationTokenException", "MissingAuthenticationToken"
    status, space = 403, _PLATFORM

    def __init__(self) -> None:
        super().__init__(
            "Request is missing Authentication Token: sign it by Signature Version 4 with an "
            "access key of a user (goqueue key create --kind access) or of the setting "
            "sqs.access_keys."
        )


class IncompleteSignature(SqsError):
    name, query_name = "IncompleteSignatureException", "IncompleteSignature"
    space = _PLATFORM


class InvalidClientToken(SqsError):
    name, query_name = "UnrecognizedClientException", "InvalidClientTokenId"
    status, space = 403, _PLATFORM

    def __init__(self) -> None:
        super().__init__("The security token included in the request is invalid.")


class SignatureDoesNotMatch(SqsError):
    name, query_name = "InvalidSignatureException", "SignatureDoesNotMatch"
    status, space = 403, _PLATFORM


class SignatureNotCurrent(SignatureDoesNotMatch):
    """The time of a signature is too far from ours: no attempt to guess a secret."""


# Errors of the node


class RequestThrottled(SqsError):
    name = query_name = "RequestThrottled"
    status = 403


class ServiceUnavailable(SqsError):
    name, query_name = "ServiceUnavailableException", "ServiceUnavailable"
    status, space = 503, _PLATFORM


class InternalFailure(SqsError):
    name, query_name = "InternalFailure", "InternalFailure"
    status, space = 500, _PLATFORM


class InvalidRequest(SqsError):
    """Any error without a code of its own; the text says what to do."""

    name, query_name = "InvalidParameterValueException", "InvalidParameterValue"


# By the code in the result of a batch entry, the name that metrics count the error under.
NAMES = {one.query_name: one.name for one in SqsError.__subclasses__()}

# Errors that have an equivalent in SQS. Others are mapped by their HTTP status.
MEANINGS: dict[type[GoQueueError], type[SqsError]] = {
    errors.AccessDenied: AccessDenied,
    errors.AuthenticationRequired: MissingAuthentication,
    errors.AuthenticationFailed: InvalidClientToken,
    errors.TooManyFailures: RequestThrottled,
    errors.TenantSuspended: AccessDenied,
    errors.QuotaExceeded: RequestThrottled,
    errors.QuotaReached: OverLimit,
    errors.StorageQuotaReached: OverLimit,
    errors.InFlightQuotaReached: OverLimit,
    errors.QueueExists: QueueNameExists,
    errors.UnknownQueue: QueueDoesNotExist,
    errors.QueueDeletedRecently: QueueDeletedRecently,
    errors.PurgeInProgress: PurgeQueueInProgress,
    errors.UnknownGroup: QueueDoesNotExist,
    errors.UnknownTopic: QueueDoesNotExist,
    errors.UnknownTopicId: QueueDoesNotExist,
    errors.InvalidReceipt: ReceiptHandleIsInvalid,
    errors.StaleReceipt: MessageNotInflight,
    errors.UnknownRedrive: ResourceNotFound,
    errors.UnknownReport: ResourceNotFound,
    errors.RedriveActive: UnsupportedOperation,
    errors.RedriveEnded: UnsupportedOperation,
}


def told(error: GoQueueError) -> SqsError:
    """Map an error to the SQS error that clients receive."""
    if isinstance(error, SqsError):
        return error
    meaning = MEANINGS.get(type(error))
    if meaning is not None:
        made = meaning.__new__(meaning)
        Exception.__init__(made, *_text(meaning, error))
        return made
    status = status_of(error)
    if status in (503, 507):
        return ServiceUnavailable(str(error))
    if status >= 500:
        return InternalFailure(str(error))
    if isinstance(error, HttpError) and status in (403, 421):
        return AccessDenied(str(error))
    return InvalidRequest(str(error))


def _text(meaning: type[SqsError], error: GoQueueError) -> tuple[str]:
    """SQS's wording if clients may compare it, otherwise ours, which says what to do."""
    if meaning is QueueDoesNotExist:
        return (str(QueueDoesNotExist()),)
    if meaning is QueueDeletedRecently:
        return (str(QueueDeletedRecently()),)
    return (str(error),)
