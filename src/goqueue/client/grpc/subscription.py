"""A member of a stream group as long as a stream of `Subscribe` lasts, without a connection.

The stream is the membership: the broker assigns partitions and sends their messages from the
committed offsets. A member whose stream breaks subscribes again, and reads from there: messages
that were not committed come again, and none is skipped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from goqueue.client.grpc.messages import damage_of, message_of
from goqueue.client.grpc.request import SERVICES, call
from goqueue.client.grpc.requests.transactions import offsets_to_commit, refused_offsets
from goqueue.client.http.consumers.membership import (
    FENCED,
    NOTHING,
    MemberIdentity,
    Rebalance,
    StreamSettings,
    log_damage,
    log_reset,
)
from goqueue.client.http.failures import Failure
from goqueue.client.http.messages import Message
from goqueue.client.http.request import Request
from goqueue.client.http.requests.members import Partitions
from goqueue.client.http.steps import Callback, Steps
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.wire.grpc.messages import consume_service_pb2 as wire
from goqueue.wire.grpc.messages import offset_service_pb2 as offsets_wire
from goqueue.wire.http.bodies.groups import PartitionReset

PATH = f"{SERVICES}ConsumeService/Subscribe"
RESPONSES_MAX = 2  # read ahead of the caller; the broker sends no more than fits on the way

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Subscription:
    """The state of the member as this client knows it."""

    group: str
    member_id: str
    instance_id: str | None
    settings: StreamSettings
    epoch: int = 0
    owned: Partitions = NOTHING
    positions: dict[TopicPartition, int] = field(default_factory=dict)  # after what was returned
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _pending: deque[Message] = field(default_factory=deque)

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.group, self.member_id, self.epoch)

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def request(self) -> bytes:
        """The request that makes this client a member."""
        settings = self.settings
        is_latest = settings.start == "latest"
        return wire.SubscribeRequest(
            group=self.group,
            topics=settings.topics,
            topic_pattern=settings.topic_pattern,
            instance_id=self.instance_id or "",
            start=wire.START_LATEST if is_latest else wire.START_EARLIEST,
            messages_max=settings.limit,
            member_id=self.member_id,
        ).SerializeToString()

    def arrived(self, response: wire.SubscribeResponse) -> Steps[None]:
        """Apply a response; its messages are returned by `take`."""
        self.member_id, self.epoch = response.member_id, response.member_epoch
        if response.is_assigned:
            yield from self._assigned(response)
        for reset in response.resets:
            yield Callback(
                self.settings.on_reset or log_reset,
                PartitionReset(
                    topic=reset.topic,
                    partition=reset.partition,
                    offset_before=reset.offset_before,
                    offset=reset.offset,
                ),
            )
        for damage in response.unreadable:
            yield Callback(self.settings.on_damage or log_damage, damage_of(damage))
        self._pending.extend(map(message_of, response.messages))

    def take(self, limit: int) -> Sequence[Message]:
        """The next messages that have arrived."""
        messages = [self._pending.popleft() for _ in range(min(limit, len(self._pending)))]
        for one in messages:
            self.positions[TopicPartition(one.topic, one.partition)] = one.offset + 1
        return messages

    def lost(self) -> Steps[None]:
        """The stream has ended: the partitions may belong to others now."""
        lost, self.owned = self.owned, NOTHING
        self._pending.clear()
        self.positions.clear()
        self._committed.clear()
        if lost and self.settings.on_rebalance is not None:
            yield Callback(self.settings.on_rebalance, Rebalance(revoked=lost, lost=True))

    def commit_returned(self) -> Steps[None]:
        """Commit what earlier polls returned; what a lost member read comes again."""
        offsets = {one: at for one, at in self.positions.items() if self._committed.get(one) != at}
        if offsets:
            try:
                yield from self._commit(offsets)
            except FENCED as error:
                _log.info("offsets of a member that was replaced were not committed: %s", error)

    def commit(self, messages: Iterable[Message] | None = None) -> Steps[None]:
        """Commit the offsets after these messages, or after all that were returned."""
        offsets = dict(self.positions)
        if messages is not None:
            offsets = {}
            for one in messages:
                partition = TopicPartition(one.topic, one.partition)
                offsets[partition] = max(offsets.get(partition, 0), one.offset + 1)
        if offsets:
            yield from self._commit(offsets)

    def _commit(self, offsets: dict[TopicPartition, int]) -> Steps[None]:
        refused: dict[TopicPartition, GoQueueError] = yield self._commit_request(offsets)
        for error in refused.values():
            raise error
        self._committed |= offsets

    def _commit_request(
        self, offsets: dict[TopicPartition, int]
    ) -> Request[dict[TopicPartition, GoQueueError]]:
        request = offsets_wire.CommitOffsetsRequest(
            group=self.group,
            offsets=offsets_to_commit(offsets),
            member_id=self.member_id,
            member_epoch=self.epoch,
        )
        return call(
            "OffsetService/CommitOffsets",
            request,
            offsets_wire.CommitOffsetsResponse,
            lambda response: refused_offsets(response.errors),
        )

    def _assigned(self, response: wire.SubscribeResponse) -> Steps[None]:
        target = frozenset(
            TopicPartition(one.topic, number)
            for one in response.assignment
            for number in one.partitions
        )
        revoked, added = self.owned - target, target - self.owned
        self.owned = target
        if (revoked or added) and self.settings.on_rebalance is not None:
            yield Callback(self.settings.on_rebalance, Rebalance(revoked=revoked, assigned=added))
        for gone in revoked:
            self.positions.pop(gone, None)
            self._committed.pop(gone, None)
        kept = [one for one in self._pending if TopicPartition(one.topic, one.partition) in target]
        self._pending = deque(kept)


def may_resubscribe(failure: Failure) -> bool:
    """Whether another stream may succeed where this one ended."""
    return failure.is_passing or isinstance(failure.error, FENCED)
