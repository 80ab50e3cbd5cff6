"""Changes the protocol of a group while its members continue to work.

The first member of the consumer protocol turns a classic group of consumers into a consumer group;
when the last one leaves, the remaining classic members go back to assigning themselves. All members
keep their assignments. Only the group's rules change, and classic members adopt the new ones by
rejoining, as they do at any rebalance.
"""

from __future__ import annotations

from goqueue.groups.assignment.partitions import NO_PARTITIONS, Partitions
from goqueue.groups.classic.embedded_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    encode_assignment,
)
from goqueue.groups.classic.membership import ClassicMembership
from goqueue.groups.classic.roster import ClassicMember
from goqueue.groups.consumer.classic_members import read_subscription
from goqueue.groups.consumer.member import ConsumerMember
from goqueue.groups.consumer.membership import ConsumerMembership
from goqueue.groups.consumer.reconciler import Reconciler
from goqueue.groups.group import Group
from goqueue.groups.metrics import Reason
from goqueue.groups.records import MemberRecord
from goqueue.groups.refusals import rebalance_in_progress
from goqueue.model.errors import InconsistentProtocol, MalformedRequest


def upgrade(group: Group, classic: ClassicMembership, now_ms: int) -> ConsumerMembership:
    """Turn a classic group into a consumer group; refuse, without changes, if that is
    impossible.
    """
    members = list(classic.roster.members.values())
    if members and classic.protocol_type != PROTOCOL_TYPE:
        raise InconsistentProtocol(
            f"Group {group.group_id!r} is of protocol type {classic.protocol_type!r}; "
            "members of the consumer protocol cannot join it."
        )
    consumer = ConsumerMembership(
        group, epoch=classic.rebalance.generation, emptied_at_ms=classic.emptied_at_ms
    )
    reconciler = consumer.reconciler
    converted = [_to_consumer(member, reconciler) for member in members]
    _settle_claims(converted)
    classic.close(rebalance_in_progress(group.group_id))
    for member in converted:
        reconciler.add(member)
        reconciler.arm_session(member, now_ms)
        group.stage_member(member.member_id, member.to_record())
    for member_id in sorted(classic.rebalance.stored - reconciler.members.keys()):
        group.stage_member(member_id, None)
    reconciler.store_group()
    group.membership = consumer
    if converted:
        reconciler.rebalance(Reason.UPGRADED, now_ms)
    return consumer


def downgrade(group: Group, consumer: ConsumerMembership, now_ms: int) -> ClassicMembership:
    """Turn it back into a classic group, starting with a rebalance."""
    reconciler = consumer.reconciler
    classic = ClassicMembership(
        group, generation=reconciler.epoch, emptied_at_ms=reconciler.emptied_at_ms
    )
    classic.rebalance.protocol_type = PROTOCOL_TYPE
    consumer.close(rebalance_in_progress(group.group_id))
    for member in reconciler.members.values():
        classic.rebalance.revive(_to_classic_record(member, group.group_id))
    group.membership = classic
    classic.rebalance.resume_after_downgrade(now_ms)
    return classic


def _to_consumer(member: ClassicMember, reconciler: Reconciler) -> ConsumerMember:
    group_id = reconciler.group.group_id
    subscription = read_subscription(member.protocols, group_id)
    held = NO_PARTITIONS if member.is_new else _read_assignment(member, group_id)
    converted = reconciler.new_member(member.member_id, member.session_timeout_ms)
    converted.load(
        MemberRecord(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=member.protocols,
            topics=tuple(sorted(set(subscription.topics))),
            epoch=reconciler.epoch,
        )
    )
    converted.assigned = converted.target = held
    converted.revoking = subscription.owned - held
    return converted


def _settle_claims(members: list[ConsumerMember]) -> None:
    """Reserve partitions that a member owned at its last join and did not get back.

    The member may still be using them; only its next join will show. Until then no other member
    gets them, unless another had them.
    """
    taken = NO_PARTITIONS.union(*(member.assigned for member in members))
    for member in members:
        member.revoking -= taken
        taken |= member.revoking


def _read_assignment(member: ClassicMember, group_id: str) -> Partitions:
    try:
        return decode_assignment(member.assignment, group_id=group_id)
    except MalformedRequest as error:
        raise InconsistentProtocol(
            f"The assignment of member {member.member_id!r} cannot be read, "
            "so members of the consumer protocol cannot join."
        ) from error


def _to_classic_record(member: ConsumerMember, group_id: str) -> MemberRecord:
    return MemberRecord(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocols,
        assignment=encode_assignment(member.held, group_id=group_id),
        epoch=member.epoch,
    )
