"""Policies of queues: the dead-letter queue, and who may use a queue as one; permissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.wire.sqs.errors import (
    InvalidAttributeValue,
    InvalidParameterValue,
    MissingParameter,
    OverLimit,
)
from goqueue.wire.sqs.names import ACCOUNT_LENGTH, Site, name_of_arn

RECEIVE_COUNT_MAX = 1000
SOURCES_MAX = 10
POLICY_BYTES_MAX = 64 << 10
STATEMENTS_MAX = 20  # created by AddPermission
ACTIONS_MAX = 7
# The actions that can be granted to others; the rest is reserved for the owner of the queue.
_GRANTABLE = (
    "*",
    "ChangeMessageVisibility",
    "DeleteMessage",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
)
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


def check_policy(text: str) -> None:
    if len(text) > POLICY_BYTES_MAX or _object(text) is None:
        raise InvalidAttributeValue("Policy")


def add_statement(
    policy: str, *, queue: str, site: Site, label: str, accounts: list[str], actions: list[str]
) -> str:
    """Add a statement that grants these actions to accounts. It is stored, not enforced."""
    _check_permission(label, accounts, actions)
    document = _object(policy) or {
        "Version": "2008-10-17",
        "Id": f"{site.arn_of(queue)}/SQSDefaultPolicy",
        "Statement": [],
    }
    statements = _statements(document)
    if any(one.get("Sid") == label for one in statements):
        raise InvalidParameterValue.of("Label", label, "Already exists.")
    if len(statements) >= STATEMENTS_MAX:
        raise OverLimit(f"{len(statements) + 1} statements, maximum allowed is {STATEMENTS_MAX}.")
    principals = [f"arn:aws:iam::{one}:root" for one in accounts]
    names = [f"SQS:{one.removeprefix('SQS:')}" for one in actions]
    statement = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
        "Action": names[0] if len(names) == 1 else names,
        "Resource": site.arn_of(queue),
    }
    return _encode({**document, "Statement": [*statements, statement]}).decode()


def _check_permission(label: str, accounts: list[str], actions: list[str]) -> None:
    if not label:
        raise MissingParameter("Label")
    if not accounts:
        raise MissingParameter("AWSAccountIds")
    if not actions:
        raise MissingParameter("Actions")
    for one in accounts:
        if not (one.isascii() and one.isdigit() and len(one) == ACCOUNT_LENGTH):
            raise InvalidParameterValue.of("PrincipalId", f"[{one}]", "Unable to verify.")
    for one in actions:
        if one.removeprefix("SQS:") not in _GRANTABLE:
            reason = f"It is none of {', '.join(_GRANTABLE)}."
            raise InvalidParameterValue.of("ActionName", one, reason)
    if len(actions) > ACTIONS_MAX:
        raise OverLimit(f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.")


def remove_statement(policy: str, label: str) -> str:
    """Remove a statement; the policy is empty if none is left."""
    document = _object(policy) or {}
    statements = _statements(document)
    kept = [one for one in statements if one.get("Sid") != label]
    if len(kept) == len(statements):
        raise InvalidParameterValue.of("Label", label, "can't find label.")
    return _encode({**document, "Statement": kept}).decode() if kept else ""


def _statements(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = document.get("Statement", [])
    found = found if isinstance(found, list) else [found]
    return [one for one in found if isinstance(one, dict)]


def _object(text: str) -> dict[str, Any] | None:
    """Decode a JSON object; None if the text is none."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
