"""Dispatch of commands to the active controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from goqueue.cluster.commands import (
    ChangeInSync,
    ChangeTopic,
    ClaimCopies,
    ClusterCommand,
    CreateTopic,
    Decided,
    DeleteTopic,
    DrainNode,
    ElectLeader,
    EndRouting,
    FinalizeLevel,
    GiveUpCopy,
    Heartbeat,
    Leave,
    Reassign,
    RegisterNode,
    ThrottleMove,
    ThrottleNode,
    UnregisterNode,
)
from goqueue.cluster.controller import Controller
from goqueue.cluster.facts import Decision, TopicFact
from goqueue.model.errors import UnknownTopic


def decide(
    controller: Controller, command: ClusterCommand, *, replication_factor: int, now_ms: int
) -> Decided:
    """Return the changes to propose and the result for the caller; raise if refused.

    `replication_factor` applies to topics whose creator does not name one.
    """
    if isinstance(command, CreateTopic):
        return _create(controller, command, replication_factor), None
    if isinstance(command, RegisterNode):
        return _register(controller, command, now_ms), None
    if isinstance(command, Heartbeat):
        return _heartbeat(controller, command, now_ms), None
    known = _DECIDE.get(type(command))
    if known is not None:
        return known(controller, command), None
    decision, result = command.decide(controller.metadata)  # type: ignore[union-attr]
    return controller.record(decision), result


def _create(controller: Controller, command: CreateTopic, replication_factor: int) -> Decision:
    known = controller.metadata.topic(command.name)
    if known is not None and known.id == command.id:
        return ()  # A retry: the answer to the first request was lost.
    wanted = command.replication_factor
    if wanted < 0:
        nodes = controller.metadata.nodes.values()
        # Nodes that are temporarily down count too; they get their replicas when they return.
        wanted = max(1, min(replication_factor, sum(not node.is_draining for node in nodes)))
    return controller.create_topic(
        TopicFact(command.id, command.name, command.partition_count, command.settings),
        replication_factor=wanted,
        assignments=command.assignment or None,
    )


def _register(controller: Controller, command: RegisterNode, now_ms: int) -> Decision:
    return controller.register(
        command.node,
        command.incarnation,
        command.addresses,
        rack=command.rack,
        disk=command.disk,
        cluster_id=command.cluster_id,
        support=command.support,
        now_ms=now_ms,
    )


def _heartbeat(controller: Controller, command: Heartbeat, now_ms: int) -> Decision:
    return controller.heartbeat(
        command.node,
        command.incarnation,
        applied_index=command.applied_index,
        wants_drain=command.wants_drain,
        integrity=command.integrity,
        support=command.support,
        now_ms=now_ms,
    )


def _change_topic(controller: Controller, command: ChangeTopic) -> Decision:
    known = _known(controller, command.id, command.name)
    decision: Decision = ()
    if command.partition_count > known.partition_count:
        decision += controller.add_partitions(command.name, command.partition_count)
    if command.settings != known.settings:
        decision += controller.configure_topic(command.name, command.settings)
    return decision


def _delete_topic(controller: Controller, command: DeleteTopic) -> Decision:
    _known(controller, command.id, command.name)
    return controller.delete_topic(command.name)


def _change_in_sync(controller: Controller, command: ChangeInSync) -> Decision:
    return controller.change_in_sync(
        command.node,
        command.topic_id,
        command.number,
        command.in_sync,
        leader_epoch=command.leader_epoch,
        version=command.version,
        incarnations=command.incarnations,
    )


def _reassign(controller: Controller, command: Reassign) -> Decision:
    if command.replicas:
        return controller.reassign(
            command.topic_id,
            command.number,
            command.replicas,
            throttle_bytes_per_second=command.throttle_bytes_per_second,
        )
    return controller.cancel_reassign(command.topic_id, command.number)


def _known(controller: Controller, topic_id: bytes, name: str) -> TopicFact:
    known = controller.metadata.topic(name)
    if known is None or known.id != topic_id:
        raise UnknownTopic(name)
    return known


_DECIDE: dict[type, Callable[[Controller, Any], Decision]] = {
    ChangeTopic: _change_topic,
    DeleteTopic: _delete_topic,
    ChangeInSync: _change_in_sync,
    ClaimCopies: lambda controller, command: controller.claim_copies(
        command.node, command.incarnation, command.copies
    ),
    GiveUpCopy: lambda controller, command: controller.give_up_copy(
        command.node,
        command.incarnation,
        command.topic_id,
        command.number,
        version=command.version,
    ),
    Reassign: _reassign,
    ThrottleMove: lambda controller, command: controller.throttle_move(
        command.topic_id, command.number, command.throttle_bytes_per_second
    ),
    Leave: lambda controller, command: controller.leave(command.node, command.incarnation),
    DrainNode: lambda controller, command: controller.drain(
        command.node, is_wanted=command.is_wanted
    ),
    ThrottleNode: lambda controller, command: controller.throttle_node(
        command.node,
        feeding_bytes_per_second=command.feeding_bytes_per_second,
        catching_up_bytes_per_second=command.catching_up_bytes_per_second,
    ),
    UnregisterNode: lambda controller, command: controller.unregister(command.node),
    ElectLeader: lambda controller, command: controller.elect(
        command.topic_id, command.number, is_unclean=command.is_unclean
    ),
    FinalizeLevel: lambda controller, command: controller.finalize(command.level),
    EndRouting: lambda controller, command: controller.end_routing(
        command.node, command.topic_id, command.told
    ),
}
