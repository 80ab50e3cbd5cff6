"""The membership of a consumer group: one heartbeat carries the whole protocol.

Classic members may be in such a group as well; their calls are in `classic_members`.
"""

from __future__ import annotations

from collections.abc import Collection

from goqueue.groups.assignment.assignors import SERVER_ASSIGNORS
from goqueue.groups.assignment.partitions import NO_PARTITIONS, Partitions
from goqueue.groups.assignment.subscriptions import compile_regex
from goqueue.groups.calls import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    CommitOffsets,
    ConsumerHeartbeat,
    Heartbeat,
    Join,
    Leave,
    Sync,
)
from goqueue.groups.classic.embedded_protocol import PROTOCOL_TYPE
from goqueue.groups.consumer.classic_members import ClassicMembers
from goqueue.groups.consumer.member import ConsumerMember
from goqueue.groups.consumer.reconciler import Reconciler
from goqueue.groups.effects import Token
from goqueue.groups.group import Group
from goqueue.groups.limits import (
    HEARTBEAT_MS_MIN,
    HEARTBEAT_MS_PER_MEMBER,
    MEMBER_ID_LENGTH_MAX,
    REGEX_LENGTH_MAX,
    WAITING_HEARTBEAT_MS_MIN,
)
from goqueue.groups.metrics import Reason
from goqueue.groups.results import ConsumerHeartbeatResult, GroupDescription, GroupState, GroupType
from goqueue.model.errors import (
    FencedMemberEpoch,
    GoQueueError,
    InvalidRegularExpression,
    InvalidRequest,
    UnreleasedInstance,
    UnsupportedAssignor,
)


class ConsumerMembership:
    """The calls of members; the reconciler has the members and moves them to their targets."""

    type = GroupType.CONSUMER
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group: Group, *, epoch: int = 0, emptied_at_ms: int = -1) -> None:
        self.group = group
        self.reconciler = Reconciler(group, epoch=epoch, emptied_at_ms=emptied_at_ms)
        self._classic = ClassicMembers(group, self.reconciler)

    @property
    def state(self) -> GroupState:
        return self.reconciler.state

    @property
    def emptied_at_ms(self) -> int:
        return self.reconciler.emptied_at_ms

    @property
    def is_idle(self) -> bool:
        return not self.reconciler.members

    @property
    def member_count(self) -> int:
        return len(self.reconciler.members)

    def close(self, error: GoQueueError) -> None:
        # No call of these members ever waits, so there is none to complete with the error.
        self.reconciler.close()

    # Classic members

    def join(self, call: Join, token: Token, now_ms: int) -> None:
        self._classic.join(call, token, now_ms)

    def sync(self, call: Sync, token: Token, now_ms: int) -> None:
        self._classic.sync(call, token, now_ms)

    def heartbeat(self, call: Heartbeat, token: Token, now_ms: int) -> None:
        self._classic.heartbeat(call, token, now_ms)

    def leave(self, call: Leave, token: Token, now_ms: int) -> None:
        self._classic.leave(call, token, now_ms)

    # Members of the consumer protocol

    def consumer_heartbeat(self, call: ConsumerHeartbeat, token: Token, now_ms: int) -> None:
        """Handle a heartbeat that has passed `check_consumer_heartbeat`."""
        member = self.reconciler.members.get(call.member_id)
        if member is not None and self._is_unchanged(member, call):
            self.reconciler.arm_session(member, now_ms)
            self._respond(member, token, assignment=None)
        elif call.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            self._leave(call, token, now_ms)
        elif call.member_epoch == JOIN_EPOCH:
            self._join(call, token, now_ms)
        else:
            member = self.reconciler.find(call.member_id, call.instance_id)
            self._continue(member, call, token, now_ms)

    def check_member_epoch(self, member_id: str, epoch: int) -> None:
        """Refuse a member that is unknown or gives an epoch other than its own."""
        self.reconciler.check_member_epoch(self.reconciler.find(member_id, None), epoch)

    def check_commit(
        self, call: CommitOffsets, now_ms: int, *, is_transactional: bool = False
    ) -> None:
        """Refuse commits from callers that are not current members."""
        is_open = self.is_idle or (is_transactional and call.is_anonymous)
        if is_open and call.generation < 0:
            return
        member = self.reconciler.find(call.member_id, call.instance_id)
        self.reconciler.check_member_epoch(member, call.generation)
        if member.is_classic:
            self.reconciler.arm_session(member, now_ms)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.reconciler.topics and bool(self.reconciler.members)

    def topics_read(self) -> Collection[str]:
        return self.reconciler.topics if self.reconciler.members else ()

    def describe(self) -> GroupDescription:
        return GroupDescription(
            group_id=self.group.group_id,
            type=self.type,
            state=self.state,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.reconciler.preferred_assignor(),
            epoch=self.reconciler.epoch,
            assignment_epoch=self.reconciler.target_epoch,
            members=tuple(member.describe() for member in self.reconciler.members.values()),
        )

    # Heartbeats

    def _is_unchanged(self, member: ConsumerMember, call: ConsumerHeartbeat) -> bool:
        """Whether neither side has a change: by far the most frequent heartbeat."""
        return (
            call.member_epoch == member.epoch
            and call.owned is None
            and call.subscribed_topics is None
            and call.subscribed_regex is None
            and call.server_assignor is None
            and call.instance_id == member.instance_id
            and member.member_id not in self.reconciler.behind
        )

    def _join(self, call: ConsumerHeartbeat, token: Token, now_ms: int) -> None:
        member = self._find_joining(call)
        is_new = member is None
        if member is None:
            self.reconciler.check_room()
            member = self.reconciler.new_member(call.member_id, 0)
            member.instance_id = call.instance_id
        elif member.member_id != call.member_id or member.has_left or member.is_classic:
            self.reconciler.restart(member, call.member_id, ())
        member.session_timeout_ms = self.group.consumer_session_ms
        reason = self._adopt(member, call)
        if is_new:
            self.reconciler.add(member)
            reason = Reason.MEMBER_JOINED
        self.reconciler.advance(member, reason, NO_PARTITIONS, now_ms)
        self._respond(member, token, assignment=member.assigned)

    def _continue(
        self, member: ConsumerMember, call: ConsumerHeartbeat, token: Token, now_ms: int
    ) -> None:
        self._check_epoch(member, call)
        before = member.assigned
        reason = self._adopt(member, call)
        self.reconciler.advance(member, reason, call.owned, now_ms)
        is_complete = (
            call.owned is not None
            and call.rebalance_timeout_ms is not None
            and (call.subscribed_topics is not None or call.subscribed_regex is not None)
        )
        # A client that sends a full request, or missed a response, gets everything again.
        is_full = is_complete or call.member_epoch != member.epoch or before != member.assigned
        self._respond(member, token, assignment=member.assigned if is_full else None)

    def _respond(
        self, member: ConsumerMember, token: Token, *, assignment: Partitions | None
    ) -> None:
        self.group.reply(
            token,
            ConsumerHeartbeatResult(
                member_id=member.member_id,
                member_epoch=member.epoch,
                heartbeat_interval_ms=self._heartbeat_ms(member),
                assignment=assignment,
            ),
        )

    def _heartbeat_ms(self, member: ConsumerMember) -> int:
        """The interval until the member's next heartbeat: short, unless there are many members.

        A member receives a new assignment only in the response to a heartbeat.
        """
        is_waiting = member.member_id in self.reconciler.behind
        count = len(self.reconciler.behind) if is_waiting else len(self.group.timers)
        least_ms = WAITING_HEARTBEAT_MS_MIN if is_waiting else HEARTBEAT_MS_MIN
        wanted_ms = max(least_ms, count * HEARTBEAT_MS_PER_MEMBER)
        return min(wanted_ms, self.group.consumer_heartbeat_ms)

    def _adopt(self, member: ConsumerMember, call: ConsumerHeartbeat) -> Reason | None:
        """Update the member from its heartbeat; return why that needs a rebalance."""
        old_topics, old_regex = member.topics, member.regex
        if call.client_id:
            member.client_id, member.client_host = call.client_id, call.client_host
        if call.rack_id is not None:
            member.rack_id = call.rack_id
        if call.rebalance_timeout_ms is not None:
            member.rebalance_timeout_ms = call.rebalance_timeout_ms
        if call.subscribed_topics is not None:
            member.topics = tuple(sorted(set(call.subscribed_topics)))
        if call.subscribed_regex is not None:
            member.regex = call.subscribed_regex
            self.reconciler.watch_regex(member.regex)
        is_other_assignor = False
        if call.server_assignor not in (None, member.assignor):
            old_assignor = self.reconciler.preferred_assignor()
            member.assignor = call.server_assignor
            is_other_assignor = old_assignor != self.reconciler.preferred_assignor()
        if (old_topics, old_regex) != (member.topics, member.regex):
            return Reason.SUBSCRIPTION_CHANGED
        return Reason.ASSIGNOR_CHANGED if is_other_assignor else None

    # Joining and leaving

    def _find_joining(self, call: ConsumerHeartbeat) -> ConsumerMember | None:
        """The member that rejoins, if there is one."""
        known = self.reconciler.members.get(call.member_id)
        if call.instance_id is None:
            return known
        if known is not None and known.instance_id != call.instance_id:
            raise InvalidRequest(
                f"Member id {call.member_id!r} belongs to another instance; join with a new one."
            )
        current_id = self.reconciler.static.get(call.instance_id)
        if current_id is None:
            return None
        current = self.reconciler.members[current_id]
        if current_id != call.member_id and not (current.has_left or current.is_classic):
            raise UnreleasedInstance(
                f"Instance id {call.instance_id!r} of group {self.group.group_id!r} is in use; "
                "the member that has it must leave first."
            )
        return current

    def _leave(self, call: ConsumerHeartbeat, token: Token, now_ms: int) -> None:
        member = self.reconciler.find(call.member_id, call.instance_id)
        if call.member_epoch == STATIC_LEAVE_EPOCH and member.instance_id is not None:
            self._leave_for_restart(member, now_ms)
        else:
            self.reconciler.remove(member)
            self.reconciler.rebalance(Reason.MEMBER_LEFT, now_ms)
        self.group.reply(
            token,
            ConsumerHeartbeatResult(
                member_id=call.member_id,
                member_epoch=call.member_epoch,
                heartbeat_interval_ms=self.group.consumer_heartbeat_ms,
            ),
        )

    def _leave_for_restart(self, member: ConsumerMember, now_ms: int) -> None:
        """Reserve the assignment for the duration of a session."""
        self.reconciler.hold(member, member.assigned)
        member.revoking = NO_PARTITIONS
        member.epoch, member.previous_epoch = STATIC_LEAVE_EPOCH, member.epoch
        member.rebalance_timer.cancel()
        self.reconciler.arm_session(member, now_ms)
        self.reconciler.behind.discard(member.member_id)
        self.group.stage_member(member.member_id, member.to_record())
        self.reconciler.finish_if_settled(now_ms)

    # Checks

    def _check_epoch(self, member: ConsumerMember, call: ConsumerHeartbeat) -> None:
        if call.member_epoch == member.epoch:
            return
        # The response that raised the epoch may have been lost: accept one repetition from before.
        is_repeated = call.member_epoch == member.previous_epoch and not member.has_left
        if is_repeated and call.owned is not None and call.owned <= member.assigned:
            return
        raise FencedMemberEpoch(
            f"Member {member.member_id!r} is at epoch {member.epoch}, not {call.member_epoch}; "
            "release all partitions and join again."
        )


def check_consumer_heartbeat(call: ConsumerHeartbeat) -> None:
    """Refuse what no group could accept, before any group changes."""
    if problem := _problem(call):
        raise problem
    if call.server_assignor is not None and call.server_assignor not in SERVER_ASSIGNORS:
        raise UnsupportedAssignor(
            f"Assignor {call.server_assignor!r} does not exist; "
            f"choose one of {sorted(SERVER_ASSIGNORS)}."
        )
    if call.subscribed_regex:
        if len(call.subscribed_regex) > REGEX_LENGTH_MAX:
            raise InvalidRegularExpression(
                f"The regular expression has {len(call.subscribed_regex)} characters; "
                f"{REGEX_LENGTH_MAX} are allowed."
            )
        compile_regex(call.subscribed_regex)


def _problem(call: ConsumerHeartbeat) -> GoQueueError | None:
    if not 0 < len(call.member_id) <= MEMBER_ID_LENGTH_MAX:
        return InvalidRequest(f"A member id must have 1 to {MEMBER_ID_LENGTH_MAX} characters.")
    if call.instance_id == "":
        return InvalidRequest("An instance id must not be empty.")
    if call.member_epoch < STATIC_LEAVE_EPOCH:
        return InvalidRequest(f"Member epoch {call.member_epoch} is not valid.")
    if call.member_epoch == STATIC_LEAVE_EPOCH and call.instance_id is None:
        return InvalidRequest("Only a member with an instance id can leave for a restart.")
    if call.member_epoch == JOIN_EPOCH:
        if call.rebalance_timeout_ms is None:
            return InvalidRequest("A joining member must give its rebalance timeout.")
        if call.subscribed_topics is None and call.subscribed_regex is None:
            return InvalidRequest("A joining member must subscribe to something.")
        if call.owned:
            return InvalidRequest("A joining member cannot own partitions yet.")
    return None
