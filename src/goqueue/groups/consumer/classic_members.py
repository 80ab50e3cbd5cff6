"""Classic members in a consumer group: the classic protocol, with assignment by the server.

Such a member joins and syncs as usual, but there is no leader: the server assigns. Its generation
is its member epoch, the partitions it reports in its subscription confirm a revocation, and a
heartbeat returns "rebalance in progress" whenever rejoining would change something for it.
"""

from __future__ import annotations

from goqueue.groups.calls import Heartbeat, Join, Leave, LeavingMember, Sync
from goqueue.groups.classic.embedded_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from goqueue.groups.classic.roster import Protocols
from goqueue.groups.consumer.member import ConsumerMember
from goqueue.groups.consumer.reconciler import Reconciler
from goqueue.groups.effects import Token
from goqueue.groups.group import Group
from goqueue.groups.metrics import Reason
from goqueue.groups.refusals import rebalance_in_progress
from goqueue.groups.results import DONE, JoinResult, LeaveResult, LeftMember, SyncResult
from goqueue.model.errors import (
    GoQueueError,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MalformedRequest,
    MemberIdRequired,
    UnknownMember,
)


class ClassicMembers:
    """The calls of the classic members of a consumer group."""

    def __init__(self, group: Group, reconciler: Reconciler) -> None:
        self._group = group
        self._reconciler = reconciler

    def join(self, call: Join, token: Token, now_ms: int) -> None:
        subscription = self._check_join(call)
        if not call.member_id and call.instance_id is None and call.is_member_id_required:
            # Nothing is stored: any id in the second join is accepted, if that owns nothing.
            self._group.reply(token, MemberIdRequired(call.new_member_id))
            return
        member = self._find_or_admit(call, subscription)
        is_new = member.member_id not in self._reconciler.members
        old_topics = member.topics
        self._adopt_classic(member, call, subscription)
        reason = Reason.SUBSCRIPTION_CHANGED if member.topics != old_topics else None
        if is_new:
            self._reconciler.add(member)
            reason = Reason.MEMBER_JOINED
        member.rebalance_timer.cancel()
        self._reconciler.advance(member, reason, subscription.owned, now_ms)
        self._group.timers.arm(member.rebalance_timer, now_ms + member.rebalance_timeout_ms)
        self._group.reply(
            token,
            JoinResult(
                member_id=member.member_id,
                generation=member.epoch,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=member.protocols[0][0],
                leader_id="",
            ),
        )

    def sync(self, call: Sync, token: Token, now_ms: int) -> None:
        member = self._find_classic(call.member_id, call.instance_id, call.generation)
        self._check_protocol(member, call)
        if self._should_rejoin_first(member):
            self._reconciler.arm_rebalance_timer(member, now_ms)
            raise rebalance_in_progress(self._group.group_id)
        member.rebalance_timer.cancel()
        self._reconciler.arm_session(member, now_ms)
        self._group.reply(
            token,
            SyncResult(
                protocol_type=PROTOCOL_TYPE,
                protocol_name=member.protocols[0][0],
                assignment=encode_assignment(member.assigned, group_id=self._group.group_id),
            ),
        )

    def heartbeat(self, call: Heartbeat, token: Token, now_ms: int) -> None:
        member = self._find_classic(call.member_id, call.instance_id, call.generation)
        self._reconciler.arm_session(member, now_ms)
        if self._should_rejoin(member):
            self._reconciler.arm_rebalance_timer(member, now_ms)
            raise rebalance_in_progress(self._group.group_id)
        self._group.reply(token, DONE)

    def leave(self, call: Leave, token: Token, now_ms: int) -> None:
        count_before = len(self._reconciler.members)
        left = [self._leave_one(leaving) for leaving in call.members]
        self._group.reply(token, LeaveResult(tuple(left)))
        if len(self._reconciler.members) < count_before:
            self._reconciler.rebalance(Reason.MEMBER_LEFT, now_ms)

    def _check_join(self, call: Join) -> Subscription:
        settings = self._group.settings
        shortest, longest = settings.session_ms_min, settings.session_ms_max
        if not shortest <= call.session_timeout_ms <= longest:
            raise InvalidSessionTimeout(
                f"The session timeout must be {shortest} to {longest} ms, "
                f"not {call.session_timeout_ms}."
            )
        if call.protocol_type != PROTOCOL_TYPE or not call.protocols:
            raise InconsistentProtocol(
                f"Group {self._group.group_id!r} is a consumer group; "
                f"protocol type {call.protocol_type!r} cannot join it."
            )
        self._check_agreement(call.protocols)
        return read_subscription(call.protocols, self._group.group_id)

    def _check_agreement(self, protocols: Protocols) -> None:
        """Refuse protocols under which the classic members could not continue after a downgrade."""
        offered = {name for name, _ in protocols}
        for others in self._reconciler.listed_protocols:
            if offered.isdisjoint(others):
                raise InconsistentProtocol(
                    f"The protocols {sorted(offered)} are not shared by all classic members of "
                    f"group {self._group.group_id!r}."
                )

    def _check_protocol(self, member: ConsumerMember, call: Sync) -> None:
        type_differs = call.protocol_type not in (None, PROTOCOL_TYPE)
        name_differs = call.protocol_name not in (None, member.protocols[0][0])
        if type_differs or name_differs:
            raise InconsistentProtocol(
                f"Member {member.member_id!r} joined with {member.protocols[0][0]!r}."
            )

    def _find_or_admit(self, call: Join, subscription: Subscription) -> ConsumerMember:
        """A returning member, a restarted instance under its new id, or a new member."""
        current_id = self._reconciler.static.get(call.instance_id or "")
        if current_id is not None and not call.member_id:
            member = self._reconciler.members[current_id]
            self._reconciler.restart(member, call.new_member_id, call.protocols)
            return member
        is_known = call.instance_id is not None or call.member_id in self._reconciler.members
        if call.member_id and is_known:
            member = self._reconciler.find(call.member_id, call.instance_id)
            if member.has_left or not member.is_classic:
                self._reconciler.restart(member, call.member_id, call.protocols)
            return member
        if subscription.owned:
            # It was evicted without notice: it must first be refused, and release everything.
            raise UnknownMember(self._group.group_id, call.member_id)
        self._reconciler.check_room()
        member_id = call.member_id or call.new_member_id
        member = self._reconciler.new_member(member_id, call.session_timeout_ms)
        member.instance_id = call.instance_id
        return member

    def _adopt_classic(
        self, member: ConsumerMember, call: Join, subscription: Subscription
    ) -> None:
        member.client_id, member.client_host = call.client_id, call.client_host
        member.session_timeout_ms = call.session_timeout_ms
        member.rebalance_timeout_ms = call.rebalance_timeout_ms
        member.rack_id = subscription.rack_id
        self._reconciler.change_protocols(member, call.protocols)
        member.topics, member.regex = tuple(sorted(set(subscription.topics))), ""
        member.assignor = None

    def _find_classic(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerMember:
        member = self._reconciler.find(member_id, instance_id)
        if not member.is_classic:
            raise UnknownMember(self._group.group_id, member_id)
        self._reconciler.check_member_epoch(member, generation)
        return member

    def _should_rejoin(self, member: ConsumerMember) -> bool:
        """Whether rejoining would confirm a revocation, or give it partitions that are now free."""
        if self._should_rejoin_first(member) or member.revoking:
            return True
        is_behind = member.member_id in self._reconciler.behind
        return is_behind and not self._reconciler.waits_for_others(member)

    def _should_rejoin_first(self, member: ConsumerMember) -> bool:
        """Whether a newer target exists and no revocation for an older one is outstanding."""
        return member.epoch < self._reconciler.target_epoch and not member.revoking

    def _leave_one(self, leaving: LeavingMember) -> LeftMember:
        error: GoQueueError | None = None
        member_id = leaving.member_id
        if not member_id and leaving.instance_id is not None:
            member_id = self._reconciler.static.get(leaving.instance_id, "")
        try:
            self._reconciler.remove(self._reconciler.find(member_id, leaving.instance_id))
        except GoQueueError as refusal:
            error = refusal
        return LeftMember(member_id=leaving.member_id, instance_id=leaving.instance_id, error=error)


def read_subscription(protocols: Protocols, group_id: str) -> Subscription:
    """The subscription of a classic member, the same under each of its protocols."""
    try:
        return decode_subscription(protocols[0][1], group_id=group_id)
    except MalformedRequest as error:
        raise InconsistentProtocol(
            "The subscription of a classic member cannot be read, "
            "so it cannot share a group with members of the consumer protocol."
        ) from error
