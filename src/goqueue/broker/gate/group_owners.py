"""Which node must answer an operation on a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.operation import Arguments

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker


def coordinator(broker: Broker, arguments: Arguments) -> int:
    """Return the coordinator of a group name, which can check whether a stream group has it."""
    return broker.coordinator_of(arguments["group"])


def coordinator_of_call(broker: Broker, arguments: Arguments) -> int:
    """Return the coordinator for an operation whose argument `call` names the group."""
    return broker.coordinator_of(arguments["call"].group_id)


coordinator_of_call.__name__ = coordinator.__name__  # as the page of all operations shows it


def owner_of_group(broker: Broker, arguments: Arguments) -> int:
    """Return the owner of a group of either kind."""
    groups, name = broker.queues.groups, arguments["group"]
    return groups.owner_of(name) if groups.is_known(name) else broker.coordinator_of(name)
