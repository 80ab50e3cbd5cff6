"""Fields that several requests have, with their ranges."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.messages import ack_service_pb2 as acking
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.records import MESSAGES_MAX

GROUP_NAME_LENGTH_MAX = 249
LEASE_MS_MAX = 12 * 3600 * 1000
REASON_DEFAULT = "rejected"
REASON_LENGTH_MAX = 1000
RECEIPT_LENGTH_MAX = 200

Leasing = acking.ExtendRequest | consuming.Extend | consuming.PullRequest | consuming.ReceiveStart
Returning = acking.NackRequest | consuming.Nack


def group_of(name: str) -> str:
    if not 1 <= len(name) <= GROUP_NAME_LENGTH_MAX:
        raise InvalidField(
            f"The name of a group has 1 to {GROUP_NAME_LENGTH_MAX} characters.", field="group"
        )
    return name


def visibility_of(request: Leasing) -> int | None:
    """Return how long messages are leased; None for the setting of the group."""
    if not request.HasField("visibility_ms"):
        return None
    if not 1 <= request.visibility_ms <= LEASE_MS_MAX:
        raise InvalidField(f"A lease takes 1 to {LEASE_MS_MAX} ms.", field="visibility_ms")
    return request.visibility_ms


def delay_of(request: Returning) -> int | None:
    """Return when messages are delivered again; None for the backoff of the group."""
    if not request.HasField("delay_ms"):
        return None
    if not 0 <= request.delay_ms <= LEASE_MS_MAX:
        raise InvalidField(f"A delay takes at most {LEASE_MS_MAX} ms.", field="delay_ms")
    return request.delay_ms


def receipts_of(given: Sequence[str], field: str = "receipts") -> list[str]:
    """Return the receipts of a request; raise if there are none, or too many, or too long ones."""
    receipts = list(given)
    if not 1 <= len(receipts) <= MESSAGES_MAX:
        raise InvalidField(f"Give 1 to {MESSAGES_MAX} receipts.", field=field)
    if max(map(len, receipts)) > RECEIPT_LENGTH_MAX:
        raise InvalidField("One of these is no receipt: it is too long.", field=field)
    return receipts


def reason_of(given: str) -> str:
    if len(given) > REASON_LENGTH_MAX:
        raise InvalidField(f"A reason has {REASON_LENGTH_MAX} characters at most.", field="reason")
    return given or REASON_DEFAULT
