"""What all SQS requests of a node share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.wire.carrier.front_end import CarriedFrontEnd, Limits
from goqueue.wire.sqs.names import Site

if TYPE_CHECKING:
    from goqueue.broker.gate import Gate
    from goqueue.wire.carrier.routing import Operation

DELAY_SECONDS_MAX = 900
LONG_DELAY_SECONDS_MAX = 100 * 366 * 24 * 3600


class SqsRules(NamedTuple):
    """The settings of the SQS front end."""

    site: Site = Site("us-east-1", "000000000000")
    access_keys: Mapping[str, str] = {}
    message_bytes_max: int = 1 << 20
    has_long_delays: bool = False
    has_resting_names: bool = False  # names of deleted queues are reserved for a minute, as on AWS

    @property
    def delay_seconds_max(self) -> int:
        return LONG_DELAY_SECONDS_MAX if self.has_long_delays else DELAY_SECONDS_MAX


class SqsFrontEnd(CarriedFrontEnd):
    """The gate of the broker, and the settings."""

    listener = "sqs"

    def __init__(
        self, gate: Gate, limits: Limits, operations: Sequence[Operation], rules: SqsRules
    ) -> None:
        super().__init__(gate, limits, operations)
        self.rules = rules
        self.random = gate.random
