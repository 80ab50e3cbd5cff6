"""A broker with one of everything, for the matrix of access: who asks for what, and what happens.

The scene is built before access is controlled. Names that a request does not have itself must not
be in its response, if the caller may not see them; so everything has a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from goqueue.broker import Broker
from goqueue.broker.gate.areas.dead_letters import RedriveOrder
from goqueue.broker.gate.areas.named_queues import NamedQueueSpec, Posting
from goqueue.broker.gate.areas.queues import QueueSettings
from goqueue.broker.gate.areas.schemas import Request, read_subject
from goqueue.broker.gate.areas.users import KeyKind
from goqueue.cluster.facts import JobFact, NextProducerId, PartitionFact, RoutingFact, TopicFact
from goqueue.cluster.identity_facts import KeyFact, KeyUseFact, TenantFact, UserFact
from goqueue.groups import CommitOffsets, ConsumerHeartbeat, OffsetToCommit
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import (
    Access,
    Acl,
    Action,
    PatternKind,
    Permission,
    Resource,
    ResourceKind,
)
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.dead_letters import Origin, write_origin
from goqueue.model.names import AUDIT_TOPIC, INTERNAL_TOPICS, JOURNEYS_TOPIC
from goqueue.model.session import ANONYMOUS, Session
from goqueue.model.tenants import prefix_of_tenant
from goqueue.tenancy.acls import AccessControl, Who
from goqueue.wire.http.bodies.reports import REPORTS_TOPIC, Report, Section, encode_report
from goqueue.wire.sqs.front_end import SqsRules
from goqueue.wire.sqs.queue_attributes import with_defaults

T = TypeVar("T")

BUILDER = Session("test")
PAYLOAD = b"what-nobody-may-read"
HOUR_MS = 3_600_000
# In no request, so in no response to those who may see nothing.
HIDDEN_NAMES = (
    b"vault",
    b"mourners",
    b"hidden-transaction",
    b"secret-parcels",
    b"hidden-value",
    PAYLOAD,
)


# Entries that name a topic or a tenant by its id only, or are shared by all tenants.
_OF_OTHERS = (NextProducerId, PartitionFact, RoutingFact, TenantFact, JobFact)


class Surroundings(Protocol):
    """A world of one node, or of several."""

    def wait(self, promise: Promise[T]) -> T: ...

    def run_until(self, is_reached: Callable[[], bool]) -> None: ...


class Recorder:
    """A policy that allows everything, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: set[Access] = set()
        self.asked_any: set[tuple[Action, ResourceKind]] = set()

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        self.asked.add(Access(action, resource))
        return True

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        self.asked_any.add((action, kind))
        return True


class Exactly:
    """A policy by rules that allow what a recorder was asked, and nothing else."""

    def __init__(self, accesses: Iterable[Access], of_any: Iterable[tuple[Action, ResourceKind]]):
        self._control = AccessControl()
        for action, (kind, name) in set(accesses):
            self._control.add(
                Acl(kind, PatternKind.LITERAL, name, ANONYMOUS, "*", action, Permission.ALLOW)
            )
        self._of_any = set(of_any)

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        who = Who(session.principal, session.client_host)
        return self._control.allows(who, action, resource)

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        return (action, kind) in self._of_any


class Scene:
    """One of everything, and the ids of what has one."""

    def __init__(self, world: Surroundings, brokers: list[Broker]) -> None:
        self.world = world
        self.brokers = brokers
        self.ids: dict[str, str] = {}
        self._topics()
        self._groups()
        self._schedules_and_transactions()
        self._queues()
        self._registry()
        self._identities()

    def control(self, make: Callable[[Broker], Any]) -> None:
        """Control access from now on, on every node by the policy that `make` returns for it."""
        for broker in self.brokers:
            broker.gate.policy = make(broker)

    def fingerprint(self) -> tuple[object, ...]:
        """What changes if anything is done."""
        broker = self.brokers[0]
        metadata = broker.topics.facts.log.metadata
        logs = [
            (one.name, one.log.end_offset, one.log.start_offset)
            for each in self.brokers
            for one in each.topics.partitions()
            if one.name.topic not in (AUDIT_TOPIC, JOURNEYS_TOPIC)
        ]
        return (metadata.snapshot(), tuple(logs))

    def fingerprint_besides(self, tenant: str) -> tuple[object, ...]:
        """What changes if anything is done to what does not belong to a tenant."""
        metadata = self.brokers[0].topics.facts.log.metadata
        mark = prefix_of_tenant(tenant)
        facts = [
            one
            for one in metadata.facts()
            if mark not in repr(one)
            and not isinstance(one, _OF_OTHERS)
            and not (isinstance(one, TopicFact) and one.name in INTERNAL_TOPICS)
            and not (isinstance(one, UserFact | KeyFact | KeyUseFact))
        ]
        users = {name for name, one in metadata.users.items() if one.tenant != tenant}
        logs = [
            (one.name, one.log.end_offset, one.log.start_offset)
            for each in self.brokers
            for one in each.topics.partitions()
            if one.name.topic not in INTERNAL_TOPICS
            and not one.name.topic.startswith(mark)
            and not one.name.topic.startswith("__")
        ]
        return (facts, users, logs)

    @property
    def _gate(self) -> Any:
        return self.brokers[0].gate

    def _wait(self, promise: Promise[T]) -> T:
        return self.world.wait(promise)

    def _publish(self, topic: str, *values: bytes, delay_ms: int = 0) -> list[Any]:
        headers = ((DELAY_HEADER, str(delay_ms).encode()),) if delay_ms else ()
        records = [Record(b"key", value, headers) for value in values]
        return self._wait(
            self._gate.records.publish(BUILDER, topic=topic, records=records, partition=0)
        )

    def _topics(self) -> None:
        for name in ("orders", "mails", "vault"):
            self._wait(self._gate.topics.create(BUILDER, name=name, partition_count=1))
            self._publish(name, PAYLOAD, PAYLOAD, PAYLOAD, PAYLOAD)
        self._wait(self._gate.topics.create(BUILDER, name=REPORTS_TOPIC, partition_count=1))
        report = Report(name="key", written_at=1, sections=[Section(title=PAYLOAD.decode())])
        self._publish(REPORTS_TOPIC, encode_report(report))
        self.ids["report"] = report.name
        self.ids["topic_id"] = self.brokers[0].topics.get("orders").id.hex()

    def _groups(self) -> None:
        for group, topic in (("billing", "orders"), ("mourners", "vault")):
            settings = QueueSettings()
            self._wait(self._gate.groups.put_queue(BUILDER, group=group, settings=settings))
            first, second, third = self._receive(group, topic, 3)
            self.ids |= {} if group != "billing" else {"receipt": second, "other_receipt": third}
            self._wait(self._gate.queues.reject(BUILDER, group=group, receipts=[first], reason="x"))
        self._wait_for_topic("orders.dlq")
        offsets = [OffsetToCommit(topic="orders", partition=0, offset=1)]
        for group in ("shop", "idle"):
            call = CommitOffsets(group_id=group, offsets=offsets)
            self._wait(self._gate.group_offsets.commit(BUILDER, call=call))
        join = ConsumerHeartbeat(
            group_id="readers",
            member_id="",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topics=("orders",),
            owned=frozenset(),
        )
        joined = self._wait(self._gate.polling.join(BUILDER, call=join))
        self.ids |= {"member": joined.member_id, "member_epoch": str(joined.member_epoch)}
        order = RedriveOrder(rate_per_s=1)
        job = self._wait(
            self._gate.dead_letters.redrive(
                BUILDER, topic="orders", dead_letter_topic=None, order=order
            )
        )
        self.ids["redrive_id"] = job.id
        self._wait(
            self._gate.dead_letters.pause_redrive(BUILDER, topic="orders", redrive_id=job.id)
        )

    def _receive(self, group: str, topic: str, count: int) -> list[str]:
        """Lease messages; their receipts."""
        receipts: list[str] = []
        while len(receipts) < count:
            received = self._wait(
                self._gate.queues.receive(
                    BUILDER,
                    group=group,
                    topic=topic,
                    consumer="c",
                    messages_max=count - len(receipts),
                    wait_ms=5_000,
                    visibility_ms=HOUR_MS,
                    cancellation=Cancellation(),
                )
            )
            receipts += [one.delivery.receipt for one in received]
        return receipts

    def _wait_for_topic(self, name: str) -> None:
        self.world.run_until(lambda: all(one.topics.find(name) for one in self.brokers))

    def _schedules_and_transactions(self) -> None:
        for name, topic in (("schedule_id", "orders"), ("hidden_schedule_id", "vault")):
            [scheduled] = self._publish(topic, PAYLOAD, delay_ms=HOUR_MS)
            self.ids[name] = scheduled.schedule_id
        for name, transactional_id in (
            ("transaction_id", "till"),
            ("hidden_transaction_id", "hidden-transaction"),
        ):
            begun = self._wait(
                self._gate.transactions.begin(
                    BUILDER, transactional_id=transactional_id, timeout_ms=600_000
                )
            )
            self.ids[name] = begun.id
        self._wait(self._gate.queries.open(BUILDER, query_id="report", run_name="r"))

    def _queues(self) -> None:
        queues = self._gate.named_queues
        for name in ("parcels-dead", "parcels", "secret-parcels"):
            settings = {"dead_letter_topic": "parcels-dead"} if name == "parcels" else {}
            arn = "arn:aws:sqs:us-east-1:000000000000:parcels-dead"
            policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":3}}'
            attributes = {"RedrivePolicy": policy} if name == "parcels" else {}
            attributes = with_defaults(attributes, SqsRules())
            spec = NamedQueueSpec(name, attributes=attributes, queue_settings=settings)
            queue = self._wait(queues.create(BUILDER, spec=spec))
            origin = write_origin(Origin("parcels", 0, 0, "parcels", "deliveries_exhausted", 3, 1))
            record = Record(None, PAYLOAD, origin if name == "parcels-dead" else ())
            self._wait(queues.send(BUILDER, queue=queue, postings=[Posting(record, "id")]))

    def _registry(self) -> None:
        for subject in ("orders-value", "hidden-value"):
            text = f'{{"type":"record","name":"{subject[:6]}","fields":[]}}'
            found = self._wait(
                self._gate.schemas.register(
                    BUILDER,
                    subject=read_subject(subject),
                    request=Request(text),
                    normalize=False,
                    force=False,
                )
            )
            if subject == "orders-value":
                self.ids |= {"id": str(found.schema.id), "guid": found.schema.guid, "text": text}

    def _identities(self) -> None:
        users = self._gate.users
        for name in ("alice", "vault-keeper"):
            self._wait(users.create(BUILDER, user=name, password=None, tenant=None))
        made = self._wait(
            users.create_key(
                BUILDER, user="alice", kind=KeyKind.API, expires_ms=0, description="of alice"
            )
        )
        self.ids["key_id"] = made.key.id
        acls = self._gate.acls
        self._wait(acls.create_role(BUILDER, role="operators", members=["User:vault-keeper"]))
        rule = Acl(
            ResourceKind.TOPIC,
            PatternKind.LITERAL,
            "vault",
            "User:vault-keeper",
            "*",
            Action.READ,
            Permission.ALLOW,
        )
        self._wait(acls.create(BUILDER, rules=[rule]))
