"""What all requests of one front end share."""

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
    """What one request, or all of them together, may ask of the node."""

    body_bytes_max: int = 16 << 20
    receiving_bytes_max: int = 128 << 20  # of all requests that are not complete yet
    receive_ms_max: int = 60_000
    answer_bytes_max: int = 16 << 20


class CarriedFrontEnd:
    """The gate of the broker behind a table of operations."""

    listener: ClassVar[str] = "http"

    def __init__(self, gate: Gate, limits: Limits, operations: Sequence[Operation]) -> None:
        self.gate = gate
        self._session = Session(self.listener)  # for what the front end itself has to know
        self.limits = limits
        self.operations = operations
        self.is_ready = True  # False while the node is not yet one that its cluster counts on

    @property
    def waits_for(self) -> str:
        """Why requests cannot be answered yet, as a sentence; empty if they can."""
        return "" if self.is_ready else self.gate.node.waits_for(self._session)

    def now_ms(self) -> int:
        return self.gate.clock.wall_ms()
