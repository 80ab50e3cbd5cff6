"""What all requests of the HTTP API share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.model.names import OFFSETS_TOPIC
from goqueue.wire.carrier.front_end import CarriedFrontEnd, Limits
from goqueue.wire.http.member_positions import MemberPositions

if TYPE_CHECKING:
    from goqueue.broker import Broker
    from goqueue.broker.topics.topics import Topic
    from goqueue.partition import Partition
    from goqueue.wire.carrier.forwarding import Forwarder
    from goqueue.wire.carrier.routing import Operation


class FrontEnd(CarriedFrontEnd):
    """The broker behind the API, and the little that HTTP itself must remember."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        operations: Sequence[Operation],
        forwarder: Forwarder | None = None,
    ) -> None:
        super().__init__(broker, limits, operations, forwarder)
        self.positions = MemberPositions(limits.members_max)
        if broker.cluster is not None:
            broker.cluster.replicas.on_role(self._role_changed)
        self.document: bytes | None = None  # the OpenAPI document, made when it is first asked for

    def _role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        """What members were given here is old by the time their groups come back."""
        if topic.name == OFFSETS_TOPIC and not leads:
            groups, number = self.broker.groups, partition.name.partition
            self.positions.forget_groups(lambda group: groups.partition_of(group) == number)
