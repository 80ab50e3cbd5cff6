"""What is scheduled counts as stored, and jobs write as slowly as those who started them may."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.named_queues import NamedQueueSpec
from goqueue.broker.gate.areas.records import Outgoing
from goqueue.broker.named_queues.named_queues import Posting
from goqueue.delivery.redrive import Redrive, RedriveOrder
from goqueue.model.attributes import Attributes
from goqueue.model.batch import Record
from goqueue.model.errors import StorageQuotaReached
from tests.unit.broker.node import Node
from tests.unit.broker.quotas.test_quotas import ACME, OPERATOR, OTHER, limit

DAY_MS = 24 * 3_600_000
RATE = 10_000
SIZE = 1_000
COUNT = 600  # more than one step of a job has


@pytest.fixture
def node() -> Node:
    node = Node()
    for tenant in ("acme", "other"):
        node.wait(node.broker.gate.tenants.create(OPERATOR, tenant=tenant))
        session = ACME if tenant == "acme" else OTHER
        gate = node.broker.gate.users
        node.wait(gate.create(OPERATOR, user=session.user, password=None, tenant=tenant))
        for name in ("orders", "orders.dlq"):
            node.wait(node.broker.gate.topics.create(session, name=name, partition_count=1))
    return node


def schedule(node: Node, size: int, delay_ms: int = DAY_MS) -> str:
    later = Outgoing(Record(b"k", bytes(size)), Attributes(delay_ms=delay_ms))
    publish = node.broker.gate.records.publish(ACME, topic="orders", records=[later])
    return str(node.wait(publish)[0].schedule_id)  # type: ignore[union-attr]


def restart(node: Node) -> None:
    node.stop()
    node.start()


@pytest.mark.parametrize("restarts", [restart, Node.restart_after_crash, None])
def test_scheduled_messages_count_as_stored_until_they_are_gone(
    node: Node, restarts: object
) -> None:
    limit(node, {"tenant": ""}, storage_bytes=5_000)
    first = schedule(node, 3_000)
    second = schedule(node, 3_000)
    if callable(restarts):
        restarts(node)
    node.run_for(1_500)  # Counted again every second.
    with pytest.raises(StorageQuotaReached):
        schedule(node, 1)
    records = [Record(None, bytes(100))]
    node.wait(node.broker.gate.records.publish(OTHER, topic="orders", records=records))
    for one in (first, second):
        node.wait(node.broker.gate.schedules.cancel(ACME, schedule_id=one))
    node.run_for(1_500)
    schedule(node, 1)


def test_a_released_message_is_counted_once(node: Node) -> None:
    limit(node, {"tenant": "acme"}, storage_bytes=50_000)
    schedule(node, 3_000, delay_ms=1_000)
    node.run_for(10_000)
    assert node.broker.schedules.sizes_here().get("~acme~orders", 0) == 0
    [usage] = [one for one in node.broker.quotas.usage() if one.key.limit == "storage_bytes"]
    assert 3_000 <= usage.used < 4_000


def redrive(node: Node) -> Redrive:
    return node.wait(
        node.broker.gate.dead_letters.redrive(
            ACME,
            topic="orders",
            dead_letter_topic=None,
            order=RedriveOrder(target_topic="orders"),
        )
    )


def test_a_redrive_writes_as_slowly_as_who_started_it_may(node: Node) -> None:
    gate = node.broker.gate
    records = [Record(b"k", bytes(SIZE)) for _ in range(COUNT)]
    node.wait(gate.records.publish(ACME, topic="orders.dlq", records=records))
    limit(node, {"tenant": "acme"}, producer_byte_rate=RATE)
    began_ms = node.broker.clock.now_ms()
    job = redrive(node)
    node.run_until(lambda: node.broker.redrives.get("~acme~orders", job.id).is_ended)
    found = node.broker.redrives.get("~acme~orders", job.id)
    assert (found.state, found.moved) == ("done", COUNT)
    # What the last step has written is waited for by whoever writes next.
    assert node.broker.clock.now_ms() - began_ms > 500 * SIZE * 1_000 // RATE - 2_000


def test_a_move_of_a_queue_writes_as_slowly_as_who_started_it_may(node: Node) -> None:
    gate = node.broker.gate
    for name in ("dead", "live"):
        node.wait(gate.named_queues.create(ACME, spec=NamedQueueSpec(name)))
    dead = gate.named_queues.find(ACME, name="dead")
    assert dead is not None
    postings = [Posting(Record(None, bytes(SIZE)), str(one)) for one in range(COUNT)]
    node.wait(gate.named_queues.send(ACME, queue=dead, postings=postings))
    limit(node, {"tenant": "acme"}, producer_byte_rate=RATE)
    began_ms = node.broker.clock.now_ms()
    node.wait(gate.named_queues.move(ACME, queue=dead, target="live", rate_per_s=None))

    def is_done() -> bool:
        [job] = node.broker.named_queue_moves.jobs(node.broker.named_queues.get("~acme~dead"))
        return job.is_ended

    node.run_until(is_done)
    [job] = node.broker.named_queue_moves.jobs(node.broker.named_queues.get("~acme~dead"))
    assert (job.state, job.moved) == ("done", COUNT)
    assert node.broker.clock.now_ms() - began_ms > 20_000


def test_a_job_waits_while_its_tenant_stores_as_much_as_it_may(node: Node) -> None:
    gate = node.broker.gate
    records = [Record(b"k", bytes(SIZE)) for _ in range(10)]
    node.wait(gate.records.publish(ACME, topic="orders.dlq", records=records))
    limit(node, {"tenant": "acme"}, storage_bytes=5_000)
    node.run_for(1_500)
    job = redrive(node)
    node.run_for(20_000)
    assert node.broker.redrives.get("~acme~orders", job.id).moved == 0
    limit(node, {"tenant": "acme"}, storage_bytes=None)
    node.run_until(lambda: node.broker.redrives.get("~acme~orders", job.id).is_ended)
    assert node.broker.redrives.get("~acme~orders", job.id).moved == 10
