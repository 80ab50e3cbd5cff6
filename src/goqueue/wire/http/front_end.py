"""What all HTTP requests of a node share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.wire.http.member_positions import MemberPositions

if TYPE_CHECKING:
    from goqueue.broker import Broker
    from goqueue.wire.http.routing import Operation


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, or all of them together, may ask of the node."""

    body_bytes_max: int = 16 << 20
    receiving_bytes_max: int = 256 << 20  # of all requests that are not complete yet
    receive_ms_max: int = 60_000
    answer_bytes_max: int = 16 << 20
    members_max: int = 10_000


class FrontEnd:
    """The broker behind the API, and the little that HTTP itself must remember."""

    def __init__(self, broker: Broker, limits: Limits, operations: Sequence[Operation]) -> None:
        self.broker = broker
        self.limits = limits
        self.operations = operations
        self.positions = MemberPositions(limits.members_max)
        self.document: bytes | None = None  # the OpenAPI document, made when it is first asked for

    def now_ms(self) -> int:
        return self.broker.scheduler.now_ms()
