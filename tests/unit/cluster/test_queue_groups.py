"""Queue groups are facts like topics: replayed, replaced, forgotten."""

from __future__ import annotations

from goqueue.cluster.facts import Forget, QueueGroupFact, TopicFact
from goqueue.cluster.metadata import Metadata, change_record

SHOP = QueueGroupFact(b"0123456789abcdef", "shop", {"visibility_ms": 5, "key_order": True})


def test_a_group_is_replayed_replaced_and_forgotten() -> None:
    metadata = Metadata()
    metadata.replay(change_record(SHOP, now_ms=1))
    assert metadata.queue_groups == {"shop": SHOP}
    changed = QueueGroupFact(SHOP.id, "shop", {"backoff_factor": 2.0, "start": "latest"})
    metadata.replay(change_record(changed, now_ms=2))
    assert metadata.queue_groups == {"shop": changed}
    metadata.replay(change_record(Forget(changed.key), now_ms=3))
    assert metadata.queue_groups == {}


def test_a_group_and_a_topic_of_one_name_do_not_meet() -> None:
    metadata = Metadata()
    topic = TopicFact(b"f" * 16, "shop", 1)
    metadata.replay(change_record(topic, now_ms=1))
    metadata.replay(change_record(SHOP, now_ms=1))
    metadata.replay(change_record(Forget(SHOP.key), now_ms=2))
    assert metadata.topic("shop") == topic
