"""No sequence of calls by one tenant shows a name, an id or a byte of another."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from goqueue.broker.broker import Broker
from goqueue.broker.gate import Gate
from goqueue.broker.gate.areas.dead_letters import Redrive
from goqueue.broker.gate.areas.named_queues import NamedQueueSpec
from goqueue.broker.gate.areas.records import Outgoing
from goqueue.broker.gate.areas.schemas import Request, SchemaKind, Subject
from goqueue.broker.gate.operation import Operation
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.attributes import Attributes
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.tenant_calls import Arguments, Loot, leaked, operations
from tests.simulation.world import World

OPERATOR = Session("http", principal="User:root")
SESSIONS = (
    Session("http", principal="User:alice", tenant="acme"),
    Session("http", principal="User:bob", tenant="other"),
    Session("http", principal="User:carol"),
)
CALLS_PER_OPERATION = 25
# Arguments that no front end lets through; the gate relies on that.
NOT_SENT = (
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    struct.error,
)


class Allowing:
    """Allows everything: only tenants keep clients apart, and nobody but root is an operator."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return True

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        return True


class Tenants:
    """Tenants of one node or of several, and random calls of their users."""

    def __init__(self, seed: int, gates: list[Gate], wait: Callable[[Promise[Any]], Any]) -> None:
        self.random = Random(seed)
        self.loot = Loot(self.random)
        self.gates = gates
        self.wait = wait
        self.answered: dict[str, int] = {}
        for tenant in ("acme", "other"):
            wait(gates[0].tenants.create(OPERATOR, tenant=tenant))
        for gate in gates:
            gate.policy = Allowing()
        for session in SESSIONS:
            self.furnish(session)

    def furnish(self, session: Session) -> None:
        """Give a tenant some of everything."""
        gate, wait, own = self.gates[0], self.wait, f"zq{session.tenant or 'plain'}q"
        for name in ("orders", "orders.dlq", f"{own}0", f"{own}1"):
            wait(gate.topics.create(session, name=name, partition_count=1))
            records = [Record(b"key", f"{own}7".encode(), ((f"{own}8", b"h"),))]
            wait(gate.records.publish(session, topic=name, records=records))
            later = Outgoing(Record(None, f"{own}9".encode()), Attributes(delay_ms=600_000))
            [scheduled] = wait(gate.records.publish(session, topic=name, records=[later]))
            self.loot.add_id("schedule_id", scheduled.schedule_id)
        for group in ("work", f"{own}0"):
            received = wait(
                gate.queues.receive(
                    session,
                    group=group,
                    topic="orders",
                    consumer=f"{own}5",
                    messages_max=1,
                    wait_ms=0,
                    visibility_ms=600_000,
                    cancellation=Cancellation(),
                )
            )
            self.loot.add(received)
        wait(gate.named_queues.create(session, spec=NamedQueueSpec(f"{own}2")))
        request = Request(text='{"type": "string"}', kind=SchemaKind.AVRO)
        for context, subject in ((".", f"{own}3"), (".sales", f"{own}3"), (".", "s")):
            registered = wait(
                gate.schemas.register(
                    session,
                    subject=Subject(context, subject),
                    request=request,
                    normalize=False,
                    force=False,
                )
            )
            self.loot.add_id("guid", registered.schema.guid)
        begun = wait(gate.transactions.begin(session, transactional_id=f"{own}4", timeout_ms=9000))
        self.loot.add_id("transaction_id", begun.id)
        wait(gate.queries.open(session, query_id=f"{own}6", run_name=f"{own}6"))
        self.loot.add([gate.topics.get(session, topic="orders").id])

    def call(self, operation: Operation) -> None:
        """Call an operation as some user at some node; fail if the answer has what is another's."""
        session = self.random.choice(SESSIONS)
        gate = self.random.choice(self.gates)
        try:
            arguments = Arguments(self.random, session, self.loot).of(operation)
        except (TypeError, ValueError, AssertionError):
            return  # No such value can be made.
        area, _, name = operation.name.partition(".")
        answer: Any
        try:
            answer = getattr(getattr(gate, area), name)(session, **arguments)
            if isinstance(answer, Promise):
                answer = self.wait(answer)
            self.answered[operation.name] = self.answered.get(operation.name, 0) + 1
        except GoQueueError as error:
            answer = error
        except NOT_SENT:
            return
        found = leaked(session, arguments, answer)
        assert not found, f"{operation.name} shows {found} to {session.principal}: {answer!r}"
        self.loot.add(answer)
        if isinstance(answer, Redrive):
            self.loot.add_id("redrive_id", answer.id)


def run(tenants: Tenants, calls: int) -> None:
    every = operations()
    for _ in range(calls):
        for operation in tenants.random.sample(every, len(every)):
            tenants.call(operation)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_of_another_tenant_is_shown_by_one_node(seed: int) -> None:
    world = World(seed, security__super_users="User:root")
    run(tenants := Tenants(seed, [world.broker.gate], world.wait), CALLS_PER_OPERATION)
    assert len(tenants.answered) > 80, sorted(tenants.answered)


def test_nothing_of_another_tenant_is_shown_by_three_nodes() -> None:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    brokers: list[Broker] = [one.broker for one in world.nodes.values()]
    for broker in brokers:
        object.__setattr__(broker.identities, "super_users", frozenset({"User:root"}))
        broker.gate._authoriser.namespaces._super_users = frozenset({"User:root"})
    run(Tenants(1, [one.gate for one in brokers], world.wait), 2)


def test_the_search_finds_what_is_anothers() -> None:
    acme = SESSIONS[0]
    assert leaked(acme, {"topic": "zqotherq1"}, "zqotherq1 zqacmeq2") == set()
    assert leaked(acme, {}, ["x", {"y": b"..zqplainq3"}]) == {"zqplainq3"}
    assert leaked(SESSIONS[2], {}, GoQueueError("no 'zqacmeq1'")) == {"zqacmeq1"}
