"""The registry on its topic: what is answered is durable, and ids outlive everything."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from goqueue.loop.promise import Promise, start
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import (
    GoQueueError,
    SchemaRefused,
    StorageFailed,
    StorageFull,
    UpgradeInProgress,
)
from goqueue.model.names import SCHEMAS_TOPIC
from goqueue.schemas.catalog import Version
from goqueue.schemas.drafts import Request
from goqueue.schemas.names import read_subject
from goqueue.schemas.scopes import Config, Level
from tests.unit.broker.node import Node
from tests.unit.schemas.desk import record

T = TypeVar("T")


@pytest.fixture
def node() -> Node:
    return Node()


def begin(work: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    promise: Promise[T] = Promise()
    start(work, promise.settle)
    return promise


def registering(node: Node, subject: str, text: str) -> Promise[Version]:
    return begin(node.broker.schemas.register(read_subject(subject), Request(text)))


def register(node: Node, subject: str, text: str) -> tuple[int, int]:
    """Version and id."""
    version = node.wait(registering(node, subject, text))
    return version.number, version.content.id


def ids(node: Node) -> dict[tuple[str, int], int]:
    """The id of every version."""
    registry = node.wait(begin(node.broker.schemas.look(lambda one: one)))
    return {
        version.key: version.content.id
        for subject in registry.catalog.subjects()
        for version in registry.catalog.versions(subject)
    }


def test_a_node_without_schemas_has_no_topic_for_them(node: Node) -> None:
    assert ids(node) == {}
    assert node.broker.topics.find(SCHEMAS_TOPIC) is None


def test_what_was_answered_is_there_after_a_power_cut(node: Node) -> None:
    assert register(node, "users", record(a="int")) == (1, 1)
    assert register(node, "users", record(a="int", b="int?")) == (2, 2)
    node.restart_after_crash()
    assert ids(node) == {("users", 1): 1, ("users", 2): 2}
    assert register(node, "people", record(a="int")) == (1, 1)


def is_written(node: Node) -> bool:
    topic = node.broker.topics.find(SCHEMAS_TOPIC)
    return topic is not None and topic.partition(0).end_offset > 0


def test_an_answer_waits_for_the_disk(node: Node) -> None:
    promise = registering(node, "users", record(a="int"))
    node.run_until(lambda: is_written(node))
    assert not promise.is_done
    seen = begin(node.broker.schemas.look(lambda one: one.find_id(1)))
    assert not seen.is_done, "an id was told that a power cut could still take back"
    assert node.wait(promise).content.id == node.wait(seen).id == 1


def test_registrations_of_one_schema_at_once_get_one_id(node: Node) -> None:
    promises = [registering(node, f"s{number % 5}", record(a="int")) for number in range(50)]
    assert {node.wait(one).content.id for one in promises} == {1}
    assert len(ids(node)) == 5


def test_registrations_at_once_keep_to_the_rules(node: Node) -> None:
    texts = [record(a="int", **{f"b{number}": "int"}) for number in range(10)]
    outcomes = []
    for promise in [registering(node, "users", text) for text in texts]:
        try:
            outcomes.append(node.wait(promise).number)
        except SchemaRefused:
            outcomes.append(0)
    assert sorted(outcomes) == [0] * 9 + [1], "all but the first lack a default"


@pytest.mark.seeds(20)
def test_no_id_is_lost_or_given_twice_whenever_the_power_is_cut(seed: int) -> None:
    node = Node(seed)
    answered: dict[tuple[str, int], int] = {}
    meanings: dict[int, str] = {}
    for life in range(4):
        numbers = [node.random.randrange(12) for _ in range(10)]
        texts = [record(name=f"R{number}", a="int") for number in numbers]
        promises = [
            (registering(node, f"s{number % 12}-{life}", text), text)
            for number, text in zip(numbers, texts, strict=True)
        ]
        node.run_for(node.random.choice([0, 1, 3, 10]))
        for promise, text in promises:
            if promise.is_done:
                version = node.wait(promise)
                answered[version.key] = version.content.id
                assert meanings.setdefault(version.content.id, text) == text
        node.restart_after_crash()
        known = ids(node)
        assert answered.items() <= known.items(), f"life {life}"


def test_ids_survive_compaction(node: Node) -> None:
    node = Node(compaction__check_ms="1s", compaction__dirty_ratio_min="0.01")
    register(node, "users", record(a="int"))
    settings = {"cleanup_policy": "compact", "segment_bytes": "1024", "segment_ms": "1000"}
    node.wait(node.broker.topics.configure(SCHEMAS_TOPIC, settings))
    for number in range(30):
        subject = read_subject("users")
        level = Level.NONE if number % 2 else Level.FULL
        node.wait(begin(node.broker.schemas.set_config(subject, lambda _, to=level: Config(to))))
    register(node, "gone", record(name="Gone", a="int"))
    for permanent in (False, True):
        gone = node.broker.schemas.delete_subject(read_subject("gone"), permanent=permanent)
        node.wait(begin(gone))
    register(node, "last", record(name="Last", a="int"))
    node.run_for(20_000)
    partition = node.broker.topics.get(SCHEMAS_TOPIC).partition(0)
    assert node.broker.compactor.passes > 0
    assert len(node.consume(SCHEMAS_TOPIC)) < partition.end_offset / 2
    for restart in (node.restart_after_crash, node.stop):
        restart()
        if restart == node.stop:
            node.start()
        assert ids(node) == {("users", 1): 1, ("last", 1): 3}
        assert node.broker.schemas.latest(read_subject("last")) is not None
    assert register(node, "next", record(name="Next", a="int")) == (1, 4)


def test_a_disk_that_fails_takes_back_what_was_not_answered(node: Node) -> None:
    register(node, "users", record(a="int"))
    node.disk.fail_syncs(10)
    with pytest.raises(GoQueueError):
        register(node, "users", record(a="int", b="int?"))
    assert ids(node) == {("users", 1): 1}
    with pytest.raises(StorageFailed):
        register(node, "users", record(a="int", c="int?"))
    node.restart_after_crash()
    assert register(node, "users", record(a="int", c="int?"))[0] == 2


def test_a_full_disk_refuses_changes_and_answers_questions(node: Node) -> None:
    register(node, "users", record(a="int"))
    node.broker.upkeep.is_full = True
    with pytest.raises(StorageFull):
        register(node, "users", record(a="int", b="int?"))
    assert register(node, "users", record(a="int")) == (1, 1)
    assert ids(node) == {("users", 1): 1}


def test_a_large_deletion_is_written_in_pieces(node: Node) -> None:
    node.wait(begin(node.broker.schemas.set_config(read_subject(""), lambda _: Config(Level.NONE))))
    padding = "x" * 200_000
    for number in range(12):
        text = record(name="R", **{f"f{number}": "int"})[:-1] + f', "doc": "{padding}"}}'
        register(node, "users", text)
    deleted = begin(node.broker.schemas.delete_subject(read_subject("users"), permanent=False))
    assert node.wait(deleted) == list(range(1, 13))
    node.restart_after_crash()
    assert node.broker.schemas.latest(read_subject("users")) is None
    assert len(ids(node)) == 12


def test_damage_costs_what_it_hit_and_no_id_is_given_again(node: Node) -> None:
    register(node, "users", record(a="int"))
    register(node, "people", record(name="Person", a="int"))
    node.stop()
    path = f"logs/{SCHEMAS_TOPIC}/0/{0:020d}.log"
    node.disk.flip_bit(path, 8 * (node.disk.open(path).size() - 20))
    node.start()
    assert ids(node) == {("users", 1): 1}
    number, schema_id = register(node, "people", record(name="Other", a="int"))
    assert number == 1
    assert schema_id > 2


def test_a_large_registry_is_read_in_pieces_while_others_have_their_turns(node: Node) -> None:
    padding = "x" * 100_000
    node.wait(begin(node.broker.schemas.set_config(read_subject(""), lambda _: Config(Level.NONE))))
    for number in range(12):
        text = record(name="R", **{f"f{number}": "int"})[:-1] + f', "doc": "{padding}"}}'
        register(node, "users", text)
    node.stop()
    node.start()
    order: list[str] = []
    found = begin(
        node.broker.schemas.look(lambda one: len(one.live_versions(read_subject("users"))))
    )
    found.then(lambda *_: order.append("all is read"))
    assert not found.is_done
    for _ in range(3):
        node.broker.clock.call_soon(lambda: order.append("another has a turn"))
    assert node.wait(found) == 12
    assert order[0] == "another has a turn"
    assert order[-1] == "all is read"


def test_whoever_cannot_wait_has_the_registry_at_once(node: Node) -> None:
    register(node, "users", record(a="int"))
    node.stop()
    node.start()
    assert node.broker.schemas.schema_by_id(1) is not None


def test_schemas_of_a_later_release_are_not_passed_over(node: Node) -> None:
    """Their ids would be assigned again."""
    register(node, "users", record(a="int"))
    partition = node.broker.topics.get(SCHEMAS_TOPIC).partition(0)
    later = encode_batch([Record(b"version/1/orders", b"\x02later")])
    partition.append(memoryview(later), now_ms=0)
    node.run_for(100)
    node.restart_after_crash()
    for work in (lambda: ids(node), lambda: register(node, "events", record(a="int"))):
        with pytest.raises(UpgradeInProgress, match=r"version 2.*upgrade this node"):
            work()
