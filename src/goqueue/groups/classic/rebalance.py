"""The rebalance of a classic group: wait for joins, then for the leader's assignment, complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from goqueue.groups.assignment.partitions import Partition
from goqueue.groups.calls import Join
from goqueue.groups.classic.embedded_protocol import PROTOCOL_TYPE, decode_assignment
from goqueue.groups.classic.roster import ClassicMember, Roster
from goqueue.groups.effects import Token
from goqueue.groups.group import Group
from goqueue.groups.metrics import Reason
from goqueue.groups.records import GroupRecord, MemberRecord
from goqueue.groups.refusals import rebalance_in_progress
from goqueue.groups.results import GroupState, GroupType, JoinResult, SyncResult
from goqueue.groups.timers import Timer
from goqueue.model.errors import GoQueueError, MalformedRequest, UnknownMember


@dataclass(slots=True)
class InitialDelay:
    """The initial wait of an empty group for more members, extended while they arrive."""

    ms_left: int
    has_newcomer: bool = False


class ClassicRebalance:
    """The current generation and the rebalance that leads to the next one."""

    def __init__(
        self, group: Group, roster: Roster, *, generation: int, emptied_at_ms: int
    ) -> None:
        self.group = group
        self.state = GroupState.EMPTY
        self.generation = generation
        self.emptied_at_ms = emptied_at_ms
        self.protocol_type = ""
        self.protocol_name = ""
        self.roster = roster
        self.subscribed: frozenset[str] | None = None
        self.pending: dict[str, Timer] = {}  # ids returned to clients, not yet joined with
        self.pending_sync: set[str] = set()  # joined this generation, not yet synced
        self.stored: set[str] = set()  # members that have a record
        self.initial_delay: InitialDelay | None = None
        self._join_timer = Timer(self._end_joining)
        self._sync_timer = Timer(self._end_syncing)

    def restore(self, record: GroupRecord, members: Iterable[MemberRecord], now_ms: int) -> None:
        """Restore from the log; every member gets a fresh session."""
        self.generation = record.epoch
        self.emptied_at_ms = record.emptied_at_ms
        self.protocol_type = record.protocol_type
        self.protocol_name = record.protocol_name
        for stored in members:
            member = self.revive(stored)
            self.arm_session(member, now_ms)
        if self.roster.members:
            self.state = GroupState.STABLE
        if record.leader_id in self.roster.members:
            self.roster.leader_id = record.leader_id
        self.subscribed = self.roster.subscribed_topics(self.protocol_type, self.protocol_name)
        if self.roster.members and not self.protocol_name:
            self.begin(Reason.DOWNGRADED, now_ms)

    def revive(self, stored: MemberRecord) -> ClassicMember:
        member = ClassicMember(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols=stored.protocols,
            session=Timer(lambda now_ms: self._expire_session(member, now_ms)),
            assignment=stored.assignment,
            epoch_before=stored.epoch or None,
        )
        self.roster.add(member)
        self.stored.add(member.member_id)
        return member

    def resume_after_downgrade(self, now_ms: int) -> None:
        """Keep the members' assignments and request that they rejoin.

        They are stored without a chosen protocol, so that the request is repeated after a reload.
        """
        for member in self.roster.members.values():
            self.arm_session(member, now_ms)
        self.state = GroupState.STABLE
        self._store()
        self.begin(Reason.DOWNGRADED, now_ms)

    def close(self, error: GoQueueError) -> None:
        for member in self.roster.members.values():
            member.session.cancel()
            self.complete_waiting(member, error)
        for timer in (*self.pending.values(), self._join_timer, self._sync_timer):
            timer.cancel()

    # The join phase

    def begin(self, reason: Reason, now_ms: int) -> None:
        """Start a new generation."""
        self.group.rebalances.begin(reason, now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_all_joined(now_ms)
            return
        self._refuse_syncs(now_ms)
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        delay_ms = self.group.settings.initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            self.initial_delay = InitialDelay(max(self._rebalance_timeout_ms() - delay_ms, 0))
            self.group.timers.arm(self._join_timer, now_ms + delay_ms)
            return
        self.group.timers.arm(self._join_timer, now_ms + self._rebalance_timeout_ms())
        self.complete_if_all_joined(now_ms)

    def complete_if_all_joined(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self.initial_delay is not None:
            return
        if self.pending:
            return
        if self.roster.have_all_joined:
            self._complete_joining(now_ms)

    def _end_joining(self, now_ms: int) -> None:
        """End the join phase on timeout: extend the initial wait, or continue with those who
        joined.
        """
        initial_delay = self.initial_delay
        if initial_delay is not None and initial_delay.has_newcomer and initial_delay.ms_left > 0:
            delay_ms = min(self.group.settings.initial_rebalance_delay_ms, initial_delay.ms_left)
            initial_delay.has_newcomer = False
            initial_delay.ms_left -= delay_ms
            self.group.timers.arm(self._join_timer, now_ms + delay_ms)
            return
        self._drop_absent()
        self._complete_joining(now_ms)

    def _drop_absent(self) -> None:
        """Remove members that did not join. Static ones may be restarting: their session
        decides.
        """
        for member in list(self.roster.members.values()):
            if member.join_token is None and member.instance_id is None:
                self.group.rebalances.timeouts += 1
                self.remove(member)

    def _complete_joining(self, now_ms: int) -> None:
        self.initial_delay = None
        self._join_timer.cancel()
        if not self.roster.members:
            self._settle_empty(now_ms)
        elif self.roster.elect_joined_leader():
            self._start_generation(now_ms)
        else:
            # Only silent static members are left. Wait for them, or for their sessions to expire.
            self.group.timers.arm(self._join_timer, now_ms + self._rebalance_timeout_ms())

    def _settle_empty(self, now_ms: int) -> None:
        self.generation += 1
        self.state = GroupState.EMPTY
        self.emptied_at_ms = now_ms
        self.protocol_name = ""
        self.subscribed = None
        self._store()
        self.group.rebalances.finish(now_ms)

    def _start_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.state = GroupState.COMPLETING_REBALANCE
        self.protocol_name = self.roster.choose_protocol()
        self.subscribed = self.roster.subscribed_topics(self.protocol_type, self.protocol_name)
        self.group.timers.arm(self._sync_timer, now_ms + self._rebalance_timeout_ms())
        for member in self.roster.members.values():
            member.epoch_before = None
            token = self.roster.take_join(member)
            if token is None:
                continue
            member.is_new = False
            self.pending_sync.add(member.member_id)
            self.arm_session(member, now_ms)
            self.group.reply(token, self.join_result(member))

    # The sync phase

    def distribute(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Distribute the leader's assignment; members that it left out get an empty one."""
        self.state = GroupState.STABLE
        self.group.rebalances.move(self._count_moves(assignments))
        for member in self.roster.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._store()
        for member in self.roster.members.values():
            if member.sync_token is not None:
                token, member.sync_token = member.sync_token, None
                self.arm_session(member, now_ms)
                self.group.reply(token, self.sync_result(member))
        self.group.rebalances.finish(now_ms)

    def note_synced(self, member: ClassicMember) -> None:
        """Stop waiting for the sync of a member."""
        self.pending_sync.discard(member.member_id)
        if not self.pending_sync:
            self._sync_timer.cancel()

    def _end_syncing(self, now_ms: int) -> None:
        """Remove members that joined but did not sync in time."""
        absent = [self.roster.members[each] for each in sorted(self.pending_sync)]
        for member in absent:
            self.group.rebalances.timeouts += 1
            self.remove(member)
        self.begin(Reason.SYNC_TIMEOUT, now_ms)

    def _refuse_syncs(self, now_ms: int) -> None:
        self.pending_sync.clear()
        self._sync_timer.cancel()
        for member in self.roster.members.values():
            if member.sync_token is not None:
                token, member.sync_token = member.sync_token, None
                self.arm_session(member, now_ms)
                self.group.reply(token, rebalance_in_progress(self.group.group_id))

    def _count_moves(self, assignments: Mapping[str, bytes]) -> int:
        """Count partitions with a new owner; 0 if the assignment is not in the consumer format."""
        if self.protocol_type != PROTOCOL_TYPE:
            return 0
        owners: dict[Partition, str] = {}
        moves = 0
        try:
            for member in self.roster.members.values():
                for partition in decode_assignment(member.assignment):
                    owners[partition] = member.member_id
            for member_id, assignment in assignments.items():
                for partition in decode_assignment(assignment):
                    moves += owners.get(partition) != member_id
        except MalformedRequest:
            return 0
        return moves

    # Members

    def new_member(self, call: Join, member_id: str) -> ClassicMember:
        member = ClassicMember(
            member_id=member_id,
            instance_id=call.instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            session_timeout_ms=call.session_timeout_ms,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            protocols=call.protocols,
            session=Timer(lambda now_ms: self._expire_session(member, now_ms)),
            is_new=True,
        )
        return member

    def wait_for_join(self, member: ClassicMember, token: Token) -> None:
        """Let the member's join wait; its session is suspended, as it cannot send heartbeats."""
        self.complete_waiting(member, rebalance_in_progress(self.group.group_id))
        self.roster.set_join(member, token)
        if not member.is_new:
            member.session.cancel()

    def wait_for_sync(self, member: ClassicMember, token: Token) -> None:
        """Let the member's sync wait for the leader's assignment."""
        self.complete_waiting(member, rebalance_in_progress(self.group.group_id))
        member.sync_token = token
        member.session.cancel()

    def complete_waiting(self, member: ClassicMember, error: GoQueueError) -> None:
        """Complete a waiting call that has been superseded."""
        for token in (self.roster.take_join(member), member.sync_token):
            if token is not None:
                self.group.reply(token, error)
        member.sync_token = None

    def arm_session(self, member: ClassicMember, now_ms: int) -> None:
        self.group.timers.arm(member.session, now_ms + member.session_timeout_ms)

    def _expire_session(self, member: ClassicMember, now_ms: int) -> None:
        self.group.rebalances.timeouts += 1
        self.remove(member)
        self.begin(Reason.SESSION_EXPIRED, now_ms)

    def forget_pending(self, member_id: str, now_ms: int) -> None:
        del self.pending[member_id]
        self.group.context.journal.touch(self.group)
        self.complete_if_all_joined(now_ms)

    def remove(self, member: ClassicMember) -> None:
        """Remove a member; its waiting call fails."""
        member.session.cancel()
        self.complete_waiting(member, UnknownMember(self.group.group_id, member.member_id))
        self.pending_sync.discard(member.member_id)
        self.roster.remove(member)

    def _rebalance_timeout_ms(self) -> int:
        return max(
            (member.rebalance_timeout_ms for member in self.roster.members.values()), default=0
        )

    # Results and records

    def join_result(
        self,
        member: ClassicMember,
        *,
        leader_id: str | None = None,
        is_assignment_skipped: bool = False,
    ) -> JoinResult:
        leader_id = self.roster.leader_id if leader_id is None else leader_id
        is_leader = leader_id == member.member_id
        return JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=leader_id,
            members=self.roster.listed_for(self.protocol_name) if is_leader else (),
            is_assignment_skipped=is_assignment_skipped,
        )

    def sync_result(self, member: ClassicMember) -> SyncResult:
        return SyncResult(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _store(self) -> None:
        self._store_group()
        for member in self.roster.members.values():
            self.group.stage_member(member.member_id, member.to_record())
        for member_id in sorted(self.stored - self.roster.members.keys()):
            self.group.stage_member(member_id, None)
        self.stored = set(self.roster.members)

    def store_replacement(self, old_id: str, member: ClassicMember) -> None:
        self._store_group()  # It contains the leader.
        self.group.stage_member(old_id, None)
        self.group.stage_member(member.member_id, member.to_record())
        self.stored.discard(old_id)
        self.stored.add(member.member_id)

    def _store_group(self) -> None:
        self.group.stage_group(
            GroupRecord(
                type=GroupType.CLASSIC,
                epoch=self.generation,
                protocol_type=self.protocol_type,
                protocol_name=self.protocol_name,
                leader_id=self.roster.leader_id,
                emptied_at_ms=self.emptied_at_ms,
            )
        )
