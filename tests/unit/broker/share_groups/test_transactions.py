"""Share groups and transactions: as in Kafka with `share.isolation.level=read_committed`."""

from __future__ import annotations

from goqueue.model.share_groups import AckType
from tests.unit.broker.queues.test_isolation import TransactionalNode
from tests.unit.broker.share_groups.member import SESSION, Member, acks


def test_records_are_acquired_when_their_transaction_is_committed_and_never_if_it_is_aborted() -> (
    None
):
    node = TransactionalNode()
    node.create("orders")
    node.wait(node.broker.queues.groups.create("workers", {"start": "earliest"}))
    member = Member(node, "one")
    node.write(1, "aborted", "aborted")  # 0, 1
    node.write(2, "committed")  # 2
    node.send("plain")  # 3
    assert member.take() == [], "the first transaction holds back what follows it"
    node.end(1, is_commit=False)  # 4
    assert member.take() == []
    node.end(2, is_commit=True)  # 5
    node.send("later")  # 6
    assert member.take() == [(2, 3, 1), (6, 6, 1)]
    assert member.acknowledge(acks((2, 3, AckType.ACCEPT), (6, 6, AckType.ACCEPT))) == [None]
    [offset] = node.wait(member.gate.offsets(SESSION, group="workers"))
    assert (offset.start_offset, offset.lag) == (7, 0)
