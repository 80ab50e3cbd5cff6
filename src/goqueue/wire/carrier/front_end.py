"""The state that all requests of one front end share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.gate import Gate
    from goqueue.wire.carrier.routing import Operation


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one request, and on all of them together."""

    body_bytes_max: int = 16 << 20
    receiving_bytes_max: int = 128 << 20  # of all incomplete requests
    receive_ms_max: int = 60_000
    answer_bytes_max: int = 16 << 20


class CarriedFrontEnd:
    """The gate of the broker behind a table of operations."""

    listener: ClassVar[str] = "http"

    def __init__(self, gate: Gate, limits: Limits, operations: Sequence[Operation]) -> None:
        self.gate = gate
        self._session = Session(self.listener)  # for the front end's own requests
        self.limits = limits
        self.operations = operations
        self.is_ready = True  # False until the node is an accepted member of its cluster

    @property
    def waits_for(self) -> str:
        """The reason why requests cannot be served yet, as a sentence; empty if they can."""
        return "" if self.is_ready else self.gate.node.waits_for(self._session)

    def now_ms(self) -> int:
        return self.gate.clock.wall_ms()
