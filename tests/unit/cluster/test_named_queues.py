"""Named queues are facts: two nodes that make or change one at the same time cannot both do so."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.cluster.commands import PutNamedQueue, decode_command, encode_command
from goqueue.cluster.facts import Forget, NamedQueueFact
from goqueue.cluster.metadata import Metadata, change_record
from goqueue.model.errors import QueueExists, StalePartitionVersion, UnknownQueue

MAIL = NamedQueueFact(b"0123456789abcdef", "mail", "letters", "mail", 5, 5, {"a": "1"}, {"t": "x"})


def decided(metadata: Metadata, fact: NamedQueueFact) -> NamedQueueFact:
    command = decode_command(encode_command(PutNamedQueue(fact)))
    assert isinstance(command, PutNamedQueue)
    decision, _ = command.decide(metadata)
    metadata.apply_all(decision)
    return metadata.named_queues[fact.name]


def test_a_queue_is_replayed_replaced_and_forgotten() -> None:
    metadata = Metadata()
    metadata.replay(change_record(MAIL, now_ms=1))
    assert metadata.named_queues == {"mail": MAIL}
    changed = msgspec.structs.replace(MAIL, attributes={}, version=2)
    metadata.replay(change_record(changed, now_ms=2))
    assert metadata.named_queues == {"mail": changed}
    metadata.replay(change_record(Forget(changed.key), now_ms=3))
    assert metadata.named_queues == {}


def test_of_two_that_make_a_queue_one_is_told_that_it_exists() -> None:
    metadata = Metadata()
    assert decided(metadata, MAIL) == MAIL
    assert decided(metadata, MAIL) == MAIL, "the answer to the first asking was lost"
    with pytest.raises(QueueExists, match="'mail'"):
        decided(metadata, msgspec.structs.replace(MAIL, id=b"another one 1234"))


def test_of_two_that_change_a_queue_one_has_to_look_again() -> None:
    metadata = Metadata()
    decided(metadata, MAIL)
    first = msgspec.structs.replace(MAIL, tags={}, version=2)
    assert decided(metadata, first) == first
    assert decided(metadata, first) == first
    with pytest.raises(StalePartitionVersion, match="cannot follow 2"):
        decided(metadata, msgspec.structs.replace(MAIL, attributes={}, version=2))


def test_what_is_gone_is_not_changed_into_being() -> None:
    with pytest.raises(UnknownQueue, match="'mail'"):
        decided(Metadata(), msgspec.structs.replace(MAIL, version=2))
