"""What all HTTP requests of a node share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.broker.topics import OFFSETS_TOPIC
from goqueue.wire.http.member_positions import MemberPositions

if TYPE_CHECKING:
    from goqueue.broker import Broker
    from goqueue.broker.topics import Topic
    from goqueue.partition import Partition
    from goqueue.wire.http.forwarding import Forwarder
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

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        operations: Sequence[Operation],
        forwarder: Forwarder | None = None,
    ) -> None:
        """In a cluster a `forwarder` has other nodes answer what is theirs."""
        self.broker = broker
        self.forwarder = forwarder
        self.limits = limits
        self.operations = operations
        self.positions = MemberPositions(limits.members_max)
        if broker.cluster is not None:
            broker.cluster.replicas.on_role(self._role_changed)
        self.is_ready = True  # False while the node is not yet one that its cluster counts on
        self.document: bytes | None = None  # the OpenAPI document, made when it is first asked for

    @property
    def waits_for(self) -> str:
        """Why requests cannot be answered yet, as a sentence; empty if they can."""
        if self.is_ready or self.broker.cluster is None:
            return ""
        return self.broker.cluster.waits_for

    def now_ms(self) -> int:
        return self.broker.scheduler.wall_ms()

    def _role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        """What members were given here is old by the time their groups come back."""
        if topic.name == OFFSETS_TOPIC and not leads:
            groups, number = self.broker.groups, partition.name.partition
            self.positions.forget_groups(lambda group: groups.partition_of(group) == number)
