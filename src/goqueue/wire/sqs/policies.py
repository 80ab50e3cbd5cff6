"""Policies of queues: the dead-letter queue, and who may use a queue as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.wire.sqs.errors import InvalidAttributeValue, InvalidParameterValue
from goqueue.wire.sqs.names import name_of_arn

RECEIVE_COUNT_MAX = 1000
SOURCES_MAX = 10
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class RedrivePolicy:
    """The dead-letter queue, and the number of deliveries before a message goes there."""

    target_arn: str
    receive_count_max: int

    @property
    def text(self) -> str:
        """The policy as it is stored and returned."""
        fields = {
            "deadLetterTargetArn": self.target_arn,
            "maxReceiveCount": self.receive_count_max,
        }
        return _encode(fields).decode()

    @property
    def target(self) -> str | None:
        """The name of the dead-letter queue."""
        return name_of_arn(self.target_arn)

    @classmethod
    def read(cls, text: str) -> RedrivePolicy | None:
        """Decode a stored policy, if there is one."""
        return cls.parse(text) if text else None

    @classmethod
    def parse(cls, text: str) -> RedrivePolicy:
        """Decode and validate a policy that a client sets."""

        def invalid(reason: str) -> InvalidParameterValue:
            return InvalidParameterValue.of("RedrivePolicy", text, reason)

        fields = _object(text)
        if fields is None:
            raise invalid("Redrive policy is not a valid JSON map.")
        for name in ("deadLetterTargetArn", "maxReceiveCount"):
            if name not in fields:
                raise invalid(f"Redrive policy does not contain mandatory attribute: {name}.")
        unknown = sorted(set(fields) - {"deadLetterTargetArn", "maxReceiveCount"})
        if unknown:
            raise invalid(f"Redrive policy has an unknown attribute: {unknown[0]}.")
        count = fields["maxReceiveCount"]
        if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) < 6:
            count = int(count)
        if type(count) is not int or not 1 <= count <= RECEIVE_COUNT_MAX:
            raise invalid(
                f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to "
                f"{RECEIVE_COUNT_MAX} both inclusive."
            )
        arn = fields["deadLetterTargetArn"]
        if not isinstance(arn, str) or name_of_arn(arn) is None:
            raise invalid(f"Invalid value for deadLetterTargetArn: {arn}.")
        return cls(arn, count)


def normal_allow_policy(text: str) -> str:
    """A redrive allow policy in the form in which it is stored."""
    fields = _object(text)
    if fields is None or fields.get("redrivePermission") not in _PERMISSIONS:
        raise InvalidAttributeValue(
            "RedriveAllowPolicy", f"redrivePermission is one of {', '.join(_PERMISSIONS)}."
        )
    is_by_queue = fields["redrivePermission"] == "byQueue"
    sources: Any = fields.get("sourceQueueArns")
    is_list = isinstance(sources, list) and 1 <= len(sources) <= SOURCES_MAX
    if is_by_queue and not (
        is_list and all(isinstance(one, str) and name_of_arn(one) for one in sources)
    ):
        raise InvalidAttributeValue(
            "RedriveAllowPolicy", f"byQueue needs 1 to {SOURCES_MAX} ARNs in sourceQueueArns."
        )
    if not is_by_queue and sources is not None:
        raise InvalidAttributeValue(
            "RedriveAllowPolicy", "only the permission byQueue has sourceQueueArns."
        )
    return _encode(fields).decode()


def lets_in(allow_policy: str, source: str) -> bool:
    """Whether a queue with this name may use the queue of this policy as dead-letter queue."""
    fields = _object(allow_policy) or {}
    permission = fields.get("redrivePermission", "allowAll")
    if permission == "byQueue":
        return source in {name_of_arn(one) for one in fields.get("sourceQueueArns", ())}
    return bool(permission == "allowAll")


def _object(text: str) -> dict[str, Any] | None:
    """Decode a JSON object; None if the text is none."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
