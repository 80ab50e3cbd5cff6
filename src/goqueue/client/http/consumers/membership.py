"""The membership of one member in a stream group: its partitions, positions and rebalances.

The broker assigns partitions; a member that loses some reports when it has stopped reading them,
and only then are they assigned to others. A member that joins reads from the committed offsets, so
a member that lost a response joins again, and loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from goqueue.client.errors import ConnectionLost
from goqueue.client.http.messages import Message
from goqueue.client.http.requests.members import MemberRequests, MemberResult, Partitions, Polled
from goqueue.client.http.steps import Callback, Steps
from goqueue.model.errors import (
    FencedMemberEpoch,
    InvalidRequest,
    RequestTimedOut,
    StaleMemberEpoch,
    UnknownMember,
)
from goqueue.model.names import TopicPartition
from goqueue.wire.http.bodies.groups import PartitionReset
from goqueue.wire.http.bodies.messages import Damage
from goqueue.wire.http.fields import Start

_log = logging.getLogger(__name__)

NOTHING: Partitions = frozenset()
# After these errors the broker no longer treats this client as the member it was.
FENCED = (UnknownMember, FencedMemberEpoch, StaleMemberEpoch)
_UNCERTAIN = (ConnectionLost, RequestTimedOut)
_JOINS_MAX = 3  # within one poll


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions were assigned or revoked. Offsets of `lost` ones can no longer be committed."""

    revoked: Partitions = NOTHING
    assigned: Partitions = NOTHING
    lost: bool = False


class MemberIdentity(NamedTuple):
    """A member as the broker knows it."""

    group: str
    member_id: str
    epoch: int


class Membered(Protocol):
    """A consumer that is a member of a stream group."""

    @property
    def identity(self) -> MemberIdentity: ...


OnRebalance = Callable[[Rebalance], object]


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of a member of a stream group."""

    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    start: Start = "earliest"  # if the group has no committed offset
    auto_commit: bool = True  # each poll commits what the previous one returned
    limit: int = 500
    poll_ms_max: int = 300_000  # without a poll for so long, the member leaves
    on_rebalance: OnRebalance | None = None
    on_reset: Callable[[PartitionReset], object] | None = None
    on_damage: Callable[[Damage], object] | None = None

    def __post_init__(self) -> None:
        if not self.topics and not self.topic_pattern:
            raise InvalidRequest("Name the topics to read, or a topic_pattern.")


@dataclass(slots=True)
class Membership:
    """The state of the member as this client and the broker know it."""

    requests: MemberRequests
    settings: StreamSettings
    epoch: int = 0
    heartbeat_ms: int = 5_000
    owned: Partitions = NOTHING
    positions: dict[TopicPartition, int] = field(default_factory=dict)  # after what was returned
    is_joined: bool = False
    _target: Partitions | None = None  # an assignment not applied yet

    def join(self) -> Steps[None]:
        """Join the group, or join it again."""
        self.is_joined = False
        yield from self._lose_everything()
        result: MemberResult = yield self.requests.join(
            self.settings.topics, topic_pattern=self.settings.topic_pattern
        )
        self.is_joined = True
        self._note(result)
        yield from self._follow()

    def poll(self, *, limit: int, wait_ms: int) -> Steps[Sequence[Message]]:
        """Fetch more messages. A member that was evicted, or lost a response, joins again first."""
        for joins_left in reversed(range(_JOINS_MAX)):
            try:
                return (yield from self._poll_once(limit=limit, wait_ms=wait_ms))
            except (*FENCED, *_UNCERTAIN):
                self.is_joined = False
                if not joins_left:
                    raise
            except BaseException:
                # For the broker these messages were delivered, but the caller has not got them.
                self.is_joined = False
                raise
        raise AssertionError("the last round returns or raises")

    def _poll_once(self, *, limit: int, wait_ms: int) -> Steps[Sequence[Message]]:
        if not self.is_joined:
            yield from self.join()
        yield from self._follow()
        polled: Polled = yield self.requests.poll(
            self.epoch,
            limit=limit,
            wait=wait_ms / 1000,
            auto_commit=self.settings.auto_commit,
            start=self.settings.start,
        )
        self._note_poll(polled)
        yield from self._report(polled)
        for message in polled.messages:
            partition = TopicPartition(message.topic, message.partition)
            self.positions[partition] = message.offset + 1
        return polled.messages

    def heartbeat(self) -> Steps[None]:
        """Send a heartbeat; the assignment it returns is applied by the next poll."""
        if not self.is_joined:
            return
        try:
            self._note((yield self.requests.heartbeat(self.epoch)))
        except FENCED:
            self.is_joined = False

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.requests.group, self.requests.member_id, self.epoch)

    def commit(self, messages: Iterable[Message] | None = None) -> Steps[None]:
        """Commit the offsets after these messages, or after all that were returned."""
        offsets = dict(self.positions)
        if messages is not None:
            offsets = {}
            for one in messages:
                partition = TopicPartition(one.topic, one.partition)
                offsets[partition] = max(offsets.get(partition, 0), one.offset + 1)
        if offsets:
            refused = yield self.requests.commit(self.epoch, offsets)
            for error in refused.values():
                raise error

    def leave(self, *, restarts: bool = False) -> Steps[None]:
        """Leave at once, instead of letting the session expire."""
        if self.is_joined:
            self.is_joined = False
            try:
                yield self.requests.leave(restarts=restarts)
            except FENCED:
                pass  # the group already continues without this member

    def _note(self, result: MemberResult) -> None:
        self.epoch, self.heartbeat_ms = result.member_epoch, result.heartbeat_ms
        if result.assignment is not None:
            self._target = result.assignment

    def _note_poll(self, polled: Polled) -> None:
        self.epoch = polled.member_epoch
        if polled.assignment is not None:
            self._target = polled.assignment

    def _follow(self) -> Steps[None]:
        """Apply the last assignment: release revoked partitions, report that, then add new ones."""
        while self._target is not None:
            target, self._target = self._target, None
            revoked, added = self.owned - target, target - self.owned
            self.owned = target
            if (revoked or added) and self.settings.on_rebalance is not None:
                yield Callback(
                    self.settings.on_rebalance, Rebalance(revoked=revoked, assigned=added)
                )
            for gone in revoked:
                self.positions.pop(gone, None)
            if revoked:
                try:
                    self._note((yield self.requests.revoke(self.epoch, self.owned)))
                except FENCED:
                    self.is_joined = False
                    return

    def _lose_everything(self) -> Steps[None]:
        lost, self.owned = self.owned, NOTHING
        self.positions.clear()
        self._target = None
        if lost and self.settings.on_rebalance is not None:
            yield Callback(self.settings.on_rebalance, Rebalance(revoked=lost, lost=True))

    def _report(self, polled: Polled) -> Steps[None]:
        """Report records that could not be read; the group continues after them."""
        yield from self._follow()
        for reset in polled.resets:
            yield Callback(self.settings.on_reset or log_reset, reset)
        for damage in polled.damaged:
            yield Callback(self.settings.on_damage or log_damage, damage)


def log_reset(reset: PartitionReset) -> None:
    _log.warning(
        "offset %d of %s/%d no longer exists; reading continues at %d",
        reset.offset_before,
        reset.topic,
        reset.partition,
        reset.offset,
    )


def log_damage(damage: Damage) -> None:
    _log.error(
        "offsets %d to %d of partition %d cannot be read and were skipped: %s",
        damage.offset,
        damage.next_offset - 1,
        damage.partition,
        damage.detail,
    )
