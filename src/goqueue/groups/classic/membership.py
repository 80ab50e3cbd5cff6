"""The membership of a classic group: members join, elect a leader and get its assignment.

All members join; the first of them leads. The leader gets the list of members and sends an
assignment for each, which the group distributes uninterpreted. A member that joins, leaves, fails
or changes its subscription starts the next generation. Cooperative clients use two generations
where eager ones use one.
"""

from __future__ import annotations

from collections.abc import Collection

from goqueue.groups.calls import (
    CommitOffsets,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Sync,
)
from goqueue.groups.classic.rebalance import ClassicRebalance
from goqueue.groups.classic.roster import ClassicMember, Roster, read_topics
from goqueue.groups.effects import Token
from goqueue.groups.group import Group
from goqueue.groups.limits import NEW_MEMBER_JOIN_MS_MAX, is_full
from goqueue.groups.metrics import Reason
from goqueue.groups.refusals import fenced_instance, group_full, rebalance_in_progress
from goqueue.groups.results import (
    DONE,
    GroupDescription,
    GroupState,
    GroupType,
    JoinResult,
    LeaveResult,
    LeftMember,
)
from goqueue.groups.timers import Timer
from goqueue.model.errors import (
    GoQueueError,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    UnknownMember,
)
from goqueue.model.tenants import name_beside, prefix_of


class ClassicMembership:
    """The calls of classic members: to a roster of members, and a rebalance that they drive."""

    type = GroupType.CLASSIC

    def __init__(self, group: Group, *, generation: int = 0, emptied_at_ms: int = -1) -> None:
        self.group = group
        self.roster = Roster(group.group_id)
        self.rebalance = ClassicRebalance(
            group, self.roster, generation=generation, emptied_at_ms=emptied_at_ms
        )

    @property
    def state(self) -> GroupState:
        return self.rebalance.state

    @property
    def protocol_type(self) -> str:
        return self.rebalance.protocol_type

    @property
    def emptied_at_ms(self) -> int:
        return self.rebalance.emptied_at_ms

    @property
    def is_idle(self) -> bool:
        return not self.roster.members and not self.rebalance.pending

    @property
    def member_count(self) -> int:
        return len(self.roster.members)

    def close(self, error: GoQueueError) -> None:
        self.rebalance.close(error)

    def join(self, call: Join, token: Token, now_ms: int) -> None:
        self._check_join(call)
        if call.member_id in self.rebalance.pending:
            self._admit(call, call.member_id, token, now_ms)
        elif call.member_id:
            member = self.roster.find(call.member_id, call.instance_id)
            self._rejoin(member, call, token, now_ms)
        elif call.instance_id is not None and call.instance_id in self.roster.static:
            self._replace_instance(call, token, now_ms)
        elif call.instance_id is None and call.is_member_id_required:
            self._require_member_id(call, token, now_ms)
        else:
            self._admit(call, call.new_member_id, token, now_ms)

    def sync(self, call: Sync, token: Token, now_ms: int) -> None:
        member = self.roster.find(call.member_id, call.instance_id)
        self._check_generation(member, call.generation)
        self._check_protocol(call)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise rebalance_in_progress(self.group.group_id)
        self.rebalance.note_synced(member)
        if self.state is GroupState.STABLE:
            self.rebalance.arm_session(member, now_ms)
            self.group.reply(token, self.rebalance.sync_result(member))
            return
        self.rebalance.wait_for_sync(member, token)
        if member.member_id == self.roster.leader_id:
            self.rebalance.distribute(call.assignments, now_ms)

    def heartbeat(self, call: Heartbeat, token: Token, now_ms: int) -> None:
        member = self.roster.find(call.member_id, call.instance_id)
        self._check_generation(member, call.generation)
        if member.join_token is None and member.sync_token is None:
            self.rebalance.arm_session(member, now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise rebalance_in_progress(self.group.group_id)
        self.group.reply(token, DONE)

    def leave(self, call: Leave, token: Token, now_ms: int) -> None:
        count_before = len(self.roster)
        left = [self._leave_one(leaving) for leaving in call.members]
        self.group.reply(token, LeaveResult(tuple(left)))
        if len(self.roster) < count_before:
            self.rebalance.begin(Reason.MEMBER_LEFT, now_ms)
        else:
            # The join phase may have waited for a pending member that has now left.
            self.rebalance.complete_if_all_joined(now_ms)

    def check_commit(
        self, call: CommitOffsets, now_ms: int, *, is_transactional: bool = False
    ) -> None:
        """Refuse commits from callers that are not current members.

        A transactional commit without a member id needs no membership: its producer is fenced
        itself.
        """
        if self.state is GroupState.EMPTY and call.generation < 0:
            return
        if call.is_anonymous:
            if is_transactional:
                return
            raise UnknownMember(self.group.group_id, call.member_id)
        member = self.roster.find(call.member_id, call.instance_id)
        self._check_generation(member, call.generation)
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            raise rebalance_in_progress(self.group.group_id)
        if member.join_token is None:
            # A commit proves liveness, as a heartbeat does.
            self.rebalance.arm_session(member, now_ms)

    def is_subscribed(self, topic: str) -> bool:
        if self.state is GroupState.EMPTY:
            return False
        # Members name topics as their clients see them.
        plain = topic.removeprefix(prefix_of(self.group.group_id))
        return self.rebalance.subscribed is None or plain in self.rebalance.subscribed

    def topics_read(self) -> Collection[str]:
        if self.state is GroupState.EMPTY:
            return ()
        named = self.rebalance.subscribed or ()
        return set(filter(None, (name_beside(self.group.group_id, one) for one in named)))

    def describe(self) -> GroupDescription:
        protocol_name = self.rebalance.protocol_name if self.state is GroupState.STABLE else ""
        return GroupDescription(
            group_id=self.group.group_id,
            type=self.type,
            state=self.state,
            protocol_type=self.protocol_type,
            protocol_name=protocol_name,
            epoch=self.rebalance.generation,
            assignment_epoch=self.rebalance.generation,
            leader_id=self.roster.leader_id,
            members=self.roster.describe(protocol_name, self.rebalance.generation),
        )

    # Joining

    def _check_join(self, call: Join) -> None:
        settings = self.group.settings
        shortest, longest = settings.session_ms_min, settings.session_ms_max
        if not shortest <= call.session_timeout_ms <= longest:
            raise InvalidSessionTimeout(
                f"The session timeout must be {shortest} to {longest} ms, "
                f"not {call.session_timeout_ms}."
            )
        if not call.protocol_type or not call.protocols:
            raise InconsistentProtocol("A member must name its protocol type and its protocols.")
        self._check_agreement(call)
        is_known = call.member_id in self.roster.members or call.member_id in self.rebalance.pending
        size = len(self.roster) + len(self.rebalance.pending)
        if not is_known and is_full(size, settings.size_max):
            raise group_full(self.group.group_id, settings.size_max)

    def _check_agreement(self, call: Join) -> None:
        if not self.roster.members:
            return
        if call.protocol_type != self.protocol_type:
            raise InconsistentProtocol(
                f"Group {self.group.group_id!r} is of protocol type {self.protocol_type!r}, "
                f"not {call.protocol_type!r}."
            )
        offered = {name for name, _ in call.protocols}
        if not self.roster.share_one_of(offered):
            common = self.roster.common_protocols()
            raise InconsistentProtocol(
                f"None of the protocols {sorted(offered)} is shared by all members of group "
                f"{self.group.group_id!r}, who share {sorted(common)}."
            )

    def _require_member_id(self, call: Join, token: Token, now_ms: int) -> None:
        """Return the member id first: a client that never comes back then leaves no member
        behind.
        """
        member_id = call.new_member_id
        timer = Timer(lambda now_ms: self.rebalance.forget_pending(member_id, now_ms))
        self.rebalance.pending[member_id] = timer
        self.group.timers.arm(timer, now_ms + call.session_timeout_ms)
        self.group.reply(token, MemberIdRequired(member_id))

    def _admit(self, call: Join, member_id: str, token: Token, now_ms: int) -> None:
        if (pending := self.rebalance.pending.pop(member_id, None)) is not None:
            pending.cancel()
        if not self.roster.members:
            self.rebalance.protocol_type = call.protocol_type
        member = self.rebalance.new_member(call, member_id)
        self.roster.add(member)
        self.roster.set_join(member, token)
        self.group.timers.arm(member.session, now_ms + NEW_MEMBER_JOIN_MS_MAX)
        if self.rebalance.initial_delay is not None:
            self.rebalance.initial_delay.has_newcomer = True
        self.rebalance.begin(Reason.MEMBER_JOINED, now_ms)

    def _rejoin(self, member: ClassicMember, call: Join, token: Token, now_ms: int) -> None:
        is_same = member.protocols == call.protocols
        is_leader = member.member_id == self.roster.leader_id
        if self.state is GroupState.COMPLETING_REBALANCE and is_same:
            # The response to the first join was lost.
            self._repeat_join_result(member, token, now_ms)
        elif self.state is GroupState.STABLE and is_same and not is_leader:
            self._repeat_join_result(member, token, now_ms)
        else:
            # A leader that rejoins requests a new assignment, even with the same protocols.
            reason = Reason.LEADER_REJOINED if is_same else Reason.SUBSCRIPTION_CHANGED
            self.roster.adopt(member, call)
            self.rebalance.wait_for_join(member, token)
            self.rebalance.begin(reason, now_ms)

    def _repeat_join_result(self, member: ClassicMember, token: Token, now_ms: int) -> None:
        self.rebalance.arm_session(member, now_ms)
        self.group.reply(token, self.rebalance.join_result(member))

    def _replace_instance(self, call: Join, token: Token, now_ms: int) -> None:
        """Give a restarted instance its old assignment, if possible without a rebalance."""
        assert call.instance_id is not None
        member = self.roster.members[self.roster.static[call.instance_id]]
        protocol_name = self.rebalance.protocol_name
        old_id, old_topics = member.member_id, read_topics(member.metadata_for(protocol_name))
        old_leader_id = self.roster.leader_id
        fenced = fenced_instance(self.group.group_id, call.instance_id)
        self.rebalance.complete_waiting(member, fenced)
        self.rebalance.pending_sync.discard(old_id)
        self.roster.adopt(member, call)
        self.roster.rename(member, call.new_member_id)
        new_topics = read_topics(member.metadata_for(protocol_name))
        is_same = old_topics == new_topics and self.roster.choose_protocol() == protocol_name
        if self.state is not GroupState.STABLE or not is_same:
            # The assignment in progress has the old member id, so it has to be made again.
            self.rebalance.wait_for_join(member, token)
            self.rebalance.begin(Reason.INSTANCE_REPLACED, now_ms)
            return
        self.rebalance.store_replacement(old_id, member)
        self.rebalance.arm_session(member, now_ms)
        self.group.reply(token, self._replacement_result(member, call, old_leader_id))

    def _replacement_result(
        self, member: ClassicMember, call: Join, old_leader_id: str
    ) -> JoinResult:
        """Keep a returning leader from assigning, which would mean a rebalance."""
        is_leader = member.member_id == self.roster.leader_id
        if is_leader and call.can_skip_assignment:
            return self.rebalance.join_result(member, is_assignment_skipped=True)
        # A client too old for that hint is shown its former member id as the leader.
        return self.rebalance.join_result(member, leader_id=old_leader_id)

    # Leaving

    def _leave_one(self, leaving: LeavingMember) -> LeftMember:
        error: GoQueueError | None = None
        if leaving.instance_id is None and leaving.member_id in self.rebalance.pending:
            self.rebalance.pending.pop(leaving.member_id).cancel()
        else:
            try:
                member = self.roster.find_leaving(leaving.member_id, leaving.instance_id)
                self.rebalance.remove(member)
            except GoQueueError as refusal:
                error = refusal
        return LeftMember(member_id=leaving.member_id, instance_id=leaving.instance_id, error=error)

    # Checks

    def _check_generation(self, member: ClassicMember, generation: int) -> None:
        if generation == self.rebalance.generation and not member.is_new:
            return
        # After a downgrade, members have epochs of the consumer group until they join again.
        if member.epoch_before is not None and generation == member.epoch_before:
            return
        raise IllegalGeneration(
            f"Group {self.group.group_id!r} is at generation {self.rebalance.generation}, "
            f"not {generation}."
        )

    def _check_protocol(self, call: Sync) -> None:
        type_differs = call.protocol_type not in (None, self.protocol_type)
        protocol_name = self.rebalance.protocol_name
        name_differs = call.protocol_name not in (None, protocol_name)
        if type_differs or name_differs:
            raise InconsistentProtocol(
                f"Group {self.group.group_id!r} chose {self.protocol_type}/{protocol_name}."
            )
