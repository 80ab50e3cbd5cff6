"""Which node of a cluster must answer a request.

A function for each kind of thing that lives on one node at a time: the node that owns it, -1
while nobody does, or None where any node will do.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from goqueue.model.names import DELIVERY_TOPIC, OFFSETS_TOPIC
from goqueue.wire.carrier.forwarding import NOBODY, json_request
from goqueue.wire.http.bodies.queues import QueueGroup
from goqueue.wire.http.handlers.groups import group_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


# Groups


def of_name(front: FrontEnd, call: Call, _: object) -> int:
    """The coordinator of stream groups of a name, which also knows whether there is one."""
    broker = front.broker
    topic = broker.topics.find(OFFSETS_TOPIC)
    if topic is None:
        return NOBODY
    return broker.leaders.node_of(topic, broker.groups.partition_of(group_of(call)))


def of_group(front: FrontEnd, call: Call, arguments: Any) -> int:
    """The owner of a group of either kind."""
    name = group_of(call)
    if front.broker.queues.is_known(name):
        return front.broker.queues.owner_of(name)
    return of_name(front, call, arguments)


def of_receiving(
    front: FrontEnd, call: Call, arguments: Any
) -> int | Coroutine[Any, Any, int] | None:
    """The owner of a queue group, which is made first if it is not there, as is its topic."""
    name = group_of(call)
    if front.broker.queues.is_known(name):
        return front.broker.queues.owner_of(name)
    return _made(front, call, arguments)


async def _made(front: FrontEnd, call: Call, arguments: Any) -> int:
    """Have a queue group made where it is known that no stream group has its name.

    Its topic comes first: a group of a topic that cannot be made is not made either.
    """
    broker, name = front.broker, group_of(call)
    await broker.topic_in_use(arguments.topic)
    node = of_name(front, call, arguments)
    if node == broker.node_id:
        await broker.queues.create(name)
    else:
        assert front.forwarder is not None
        path = f"/v1/groups/{quote(name, safe='')}"
        request = json_request("PUT", path, {"kind": "queue"})
        await front.forwarder.ask(node, request, QueueGroup)
    return broker.queues.owner_of(name)


def of_letters(front: FrontEnd, call: Call, _: object) -> int:
    """Who knows which dead letters were brought back, of whatever topic."""
    broker = front.broker
    topic = broker.topics.find(DELIVERY_TOPIC)
    return NOBODY if topic is None else broker.leaders.node_of(topic, broker.dead_letters.shelf)
