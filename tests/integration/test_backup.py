"""Backups of a running node: what is in them, what is copied again, and what damage does."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from goqueue.client.http import Client

from .backups import command, objects, run
from .conftest import StartBroker
from .process import Broker
from .waiting import eventually

RECORD = 20_000


def api(node: Broker) -> Client:
    return Client(node.http.removeprefix("http://"))


def restored(node: Broker, folder: Path, start_broker: StartBroker, *words: str) -> Broker:
    """Lose a node, and start another one with its newest backup."""
    node.kill()
    home = folder.parent / "restored"
    home.mkdir()
    run("restore", folder, "--data-dir", home / "data", *words)
    return start_broker(node.settings, directory=home)


def test_a_restored_node_has_what_the_lost_one_had(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    node, folder = start_broker({}), tmp_path / "backups"
    with api(node) as client:
        client.topics.create("orders", partitions=2, settings={"retention_ms": "123456789"})
        client.publish_many("orders", [f"message {number}" for number in range(20)])
        queue = client.queue("orders", group="billing")
        done = [one for _ in range(4) for one in queue.receive(max_messages=3)]
        queue.ack_many(done[:6])
        held = {(one.partition, one.offset): one for one in done[6:]}
        later = client.publish("orders", "later", delay=3600)
        client.schemas.register("orders-value", '{"type": "string"}', kind="JSON")
        client.users.create("alice", "a long password")
        client.quotas.set({"user": "alice"}, {"producer_byte_rate": 1_000_000})
        quotas = client.quotas.list_all()
        assert quotas
    kafka = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "stream"})
    kafka.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    kafka.close()

    made = run("create", folder, http=node.http)
    [listed] = run("list", folder)
    assert listed["id"] == made["id"]
    assert run("verify", folder) == []
    after = restored(node, folder, start_broker)

    with api(after) as client:
        topic = client.topics.describe("orders")
        assert topic.partitions == 2
        assert topic.settings["retention_ms"] == 123456789
        values = sorted(one.text for one in client.read("orders"))
        assert values == sorted(f"message {number}" for number in range(20))
        queue = client.queue("orders", group="billing")
        queue.ack_many(list(held.values()))  # Receipts of before stay valid.
        left = eventually(lambda: queue.receive(max_messages=100), because="the rest is delivered")
        places = {(one.partition, one.offset) for one in left}
        acked = {(one.partition, one.offset) for one in done}
        assert not places & acked
        assert len(places) == 20 - len(done)
        assert client.schedules.get(str(later.schedule_id)).topic == "orders"
        assert client.schemas.subjects() == ["orders-value"]
        assert [one.name for one in client.users.list_all()] == ["alice"]
        assert client.quotas.list_all() == quotas
        assert client.node.version().cluster_id != listed["cluster"]
    kafka = Consumer({"bootstrap.servers": after.bootstrap, "group.id": "stream"})
    [committed] = kafka.committed([TopicPartition("orders", 0)], timeout=30)
    assert committed.offset == 5
    kafka.close()


def write(node: Broker, topic: str, count: int, *, size: int = RECORD) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, f"{number:08d}".encode().ljust(size, b"."), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_the_next_backup_copies_only_what_is_new(start_broker: StartBroker, tmp_path: Path) -> None:
    node, folder = start_broker({"journeys.enabled": False}), tmp_path / "backups"
    with api(node) as client:
        client.topics.create("big", partitions=1)
        write(node, "big", 200)
        run("create", folder, http=node.http)
        before = objects(folder)
        write(node, "big", 10)
        run("create", folder, http=node.http)
        after = objects(folder)
        assert {name: after[name] for name in before} == before, "nothing is written again"
        assert len(after) > len(before)
        third = run("create", folder, http=node.http)
        assert objects(folder) == after, "nothing new, nothing copied"
        assert third["copied"] == "0 B"
    again = restored(node, folder, start_broker)
    with api(again) as client:
        assert len(list(client.read("big"))) == 210


def test_damage_is_found_and_never_restored(start_broker: StartBroker, tmp_path: Path) -> None:
    node, folder = start_broker({"journeys.enabled": False}), tmp_path / "backups"
    with api(node) as client:
        for topic in ("one", "two", "three"):
            client.topics.create(topic, partitions=1)
            write(node, topic, 5)
    made = run("create", folder, http=node.http)["id"]
    paths = {one: folder / one for one in objects(folder)}
    assert len(paths) == 3
    (missing, truncated, damaged) = sorted(paths)
    whole = folder.parent / "whole"
    shutil.copytree(folder, whole)
    paths[missing].unlink()
    paths[truncated].write_bytes(paths[truncated].read_bytes()[:-1])
    data = bytearray(paths[damaged].read_bytes())
    data[len(data) // 2] ^= 1
    paths[damaged].write_bytes(data)
    found = run("verify", folder, code=1)
    assert {one["file"]: one["fault"] for one in found} == {
        missing: "missing",
        truncated: "truncated",
        damaged: "damaged",
    }
    home = tmp_path / "home"
    error = run("restore", folder, "--data-dir", home, code=1)
    assert "is missing" in error or "is damaged" in error
    # The folder is not usable as it is, and the restore of a whole backup goes on in it.
    assert (home / "restoring").exists()
    run("restore", whole, made, "--data-dir", home)
    assert not (home / "restoring").exists()
    assert "is not empty" in run("restore", whole, "--data-dir", home, code=2)
    manifest = whole / "manifests" / f"{made}.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"size":', b'"size": ', 1))
    [broken] = run("verify", whole, code=1)
    assert broken["fault"] == "damaged"
    assert broken["file"] == f"manifests/{made}.json"


def test_a_damaged_manifest_does_not_hide_the_other_backups(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    node, folder = start_broker({"journeys.enabled": False}), tmp_path / "backups"
    first = run("create", folder, http=node.http)["id"]
    second = run("create", folder, http=node.http)["id"]
    (folder / "manifests" / f"{first}.json").write_bytes(b"{")
    listed = run("list", folder)
    assert [one["id"] for one in listed] == [first, second]
    assert "is damaged" in listed[0]["fault"]
    assert (listed[1]["fault"], listed[1]["topics"]) == ("", "all")
    assert list(listed[0]) == list(listed[1]), "the first row has the columns of the table"


def test_a_folder_that_cannot_be_written_is_named(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    node, file = start_broker({"journeys.enabled": False}), tmp_path / "file"
    file.touch()
    error = run("create", file, http=node.http, code=1)
    assert f"The backup cannot be written to {file}" in error


def test_what_is_damaged_is_copied_again_once_it_is_removed(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    node, folder = start_broker({"journeys.enabled": False}), tmp_path / "backups"
    with api(node) as client:
        client.topics.create("one", partitions=1)
        write(node, "one", 5)
    run("create", folder, http=node.http)
    [name] = objects(folder)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    assert {one["file"] for one in run("verify", folder, code=1)} == {name}
    (folder / name).unlink()
    made = run("create", folder, http=node.http)["id"]
    assert run("verify", folder, made) == []


def killed_while(words: list[str], is_reached: Callable[[], bool]) -> None:
    """Kill a command in the middle of its work."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    eventually(lambda: is_reached() or process.poll() is not None, because="it works")
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL, "it has ended before it was killed"


def test_a_backup_that_is_killed_leaves_the_earlier_one_and_the_next_goes_on(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    node, folder = start_broker({}), tmp_path / "backups"
    with api(node) as client:
        client.topics.create("big", partitions=1)
        write(node, "big", 20)
        first = run("create", folder, http=node.http)["id"]
        write(node, "big", 2_000)
    killed_while(
        command("create", folder, http=node.http),
        lambda: any(one.stat().st_size > 1 << 20 for one in folder.glob("*.part")),
    )
    assert [one["id"] for one in run("list", folder)] == [first]
    assert run("verify", folder) == []
    second = run("create", folder, http=node.http)["id"]
    assert not list(folder.glob("*.part"))
    assert [one["id"] for one in run("list", folder)] == [first, second]
    assert run("verify", folder) == []


def test_a_restore_that_is_killed_can_be_repeated(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    node, folder, home = start_broker({}), tmp_path / "backups", tmp_path / "again"
    with api(node) as client:
        client.topics.create("big", partitions=1)
        write(node, "big", 4_000)
    run("create", folder, http=node.http)
    killed_while(
        command("restore", folder, "--data-dir", home / "data"),
        lambda: (home / "data" / "logs").exists(),
    )
    assert (home / "data" / "restoring").exists()
    serving = [sys.executable, "-m", "goqueue", "serve", "--data-dir", str(home / "data")]
    refused = subprocess.run(serving, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "was interrupted; run it again" in refused.stderr
    run("restore", folder, "--data-dir", home / "data")
    node.kill()
    with api(start_broker(node.settings, directory=home)) as client:
        [end] = [one.end_offset for one in client.topics.partitions("big")]
        assert end == 4_000


def test_only_chosen_topics_are_in_a_backup_of_them(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    node, folder = start_broker({}), tmp_path / "backups"
    with api(node) as client:
        for topic in ("wanted", "other"):
            client.topics.create(topic, partitions=1)
            write(node, topic, 5)
            client.queue(topic, group="workers").receive(1)
    assert "does not exist" in run("create", folder, "--topic", "none", http=node.http, code=1)
    run("create", folder, "--topic", "wanted", http=node.http)
    after = restored(node, folder, start_broker)
    with api(after) as client:
        assert [one.name for one in client.topics.list_all()] == ["wanted"]
        assert len(client.queue("wanted", group="workers").receive(10)) == 4
