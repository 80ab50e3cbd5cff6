"""What was acknowledged is there after a stop, a crash, and many crashes under load."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .clients import CLIENTS, Client, Confluent, Kcat, Message
from .members import COOPERATIVE, NEW_PROTOCOL, Member, settle
from .peer import KafkaPeer
from .process import Broker
from .topics import committed, create_topic, read_all, watermarks
from .waiting import eventually
from .writer import Writer

MiB = 1 << 20
StartBroker = Callable[..., Broker]


def admin_of(node: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})


def stop(node: Broker) -> None:
    node.stop()


def kill(node: Broker) -> None:
    node.kill()


EITHER_END = pytest.mark.parametrize("end", [stop, kill])


@EITHER_END
def test_topics_messages_settings_and_commits_survive(
    end: Callable[[Broker], None], start_broker: StartBroker
) -> None:
    node = start_broker({"groups.initial_rebalance_delay_ms": 0})
    admin = admin_of(node)
    create_topic(admin, "orders", partitions=3, **{"max.message.bytes": "5000"})
    client = Confluent(node.bootstrap)
    written = [Message(b"%d" % number, key=b"%d" % number) for number in range(300)]
    client.write("orders", written)
    client.read("orders", 300, group="readers")
    before = read_all(node.bootstrap, "orders", partitions=3)
    cluster = admin.describe_cluster().result(30).cluster_id
    end(node)
    node.start()
    assert sorted(read_all(node.bootstrap, "orders", partitions=3), key=place) == sorted(
        before, key=place
    )
    assert sum(committed(node.bootstrap, "readers", "orders", partitions=3).values()) == 300
    assert admin.describe_cluster().result(30).cluster_id == cluster
    refused: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce("orders", b"x" * 6_000, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(45) == 0
    assert refused[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def place(message: Message) -> tuple[int, int]:
    return message.partition or 0, message.offset or 0


@EITHER_END
@pytest.mark.parametrize("reader", CLIENTS, ids=lambda reader: reader.name)
def test_every_client_goes_on_from_its_commit_after(
    end: Callable[[Broker], None], reader: type[Client], start_broker: StartBroker
) -> None:
    node = start_broker({"groups.initial_rebalance_delay_ms": 0})
    create_topic(admin_of(node), "events")
    client = reader(node.bootstrap)
    client.write("events", [Message(b"%d" % number) for number in range(20)])
    first = client.read("events", 12, group="readers")
    end(node)
    node.start()
    second = client.read("events", 8, group="readers")
    assert [message.offset for message in first + second] == list(range(20))


@EITHER_END
def test_a_deleted_topic_does_not_come_back(
    end: Callable[[Broker], None], start_broker: StartBroker
) -> None:
    node = start_broker({"topics.auto_create": False})
    admin = admin_of(node)
    create_topic(admin, "gone")
    Confluent(node.bootstrap).write("gone", [Message(b"old")])
    admin.delete_topics(["gone"])["gone"].result(30)
    end(node)
    node.start()
    admin = admin_of(node)
    assert "gone" not in admin.list_topics(timeout=10).topics
    create_topic(admin, "gone")
    assert watermarks(node.bootstrap, "gone") == (0, 0)


@EITHER_END
def test_deleted_records_do_not_come_back(
    end: Callable[[Broker], None], start_broker: StartBroker
) -> None:
    node = start_broker()
    if end is kill and isinstance(node, KafkaPeer):
        pytest.skip("Apache Kafka writes down what was deleted only once a minute")
    create_topic(admin_of(node), "trimmed")
    Confluent(node.bootstrap).write("trimmed", [Message(b"%d" % number) for number in range(10)])
    before = TopicPartition("trimmed", 0, 6)
    admin = admin_of(node)
    assert admin.delete_records([before])[before].result(30).low_watermark == 6
    end(node)
    node.start()
    assert watermarks(node.bootstrap, "trimmed") == (6, 10)


@EITHER_END
def test_an_idempotent_producer_goes_on_after(
    end: Callable[[Broker], None], start_broker: StartBroker
) -> None:
    node = start_broker()
    create_topic(admin_of(node), "numbers", partitions=2)
    writer = Writer(node.bootstrap, "numbers", partitions=2, value_bytes=100)
    writer.write(5_000)
    writer.write_until_acknowledged(1_000)
    end(node)
    writer.write(5_000)
    node.start()
    writer.write(5_000)
    writer.finish()
    writer.assert_all_there_once_in_order()


@pytest.mark.parametrize("fsync", ["every", "interval", "none"])
def test_every_fsync_mode_survives_the_death_of_the_process(
    fsync: str, start_broker: StartBroker
) -> None:
    node = start_broker({"storage.fsync": fsync})
    create_topic(admin_of(node), "numbers")
    writer = Writer(node.bootstrap, "numbers", partitions=1, value_bytes=100)
    writer.write(2_000)
    writer.finish()
    node.kill()
    node.start()
    writer.assert_all_there_once_in_order()


@pytest.mark.slow
def test_repeated_crashes_under_a_writing_producer_lose_and_repeat_nothing(
    start_broker: StartBroker,
) -> None:
    node = start_broker({"storage.segment_bytes": 1 * MiB})
    create_topic(admin_of(node), "numbers", partitions=3)
    writer = Writer(node.bootstrap, "numbers", partitions=3, value_bytes=200)
    for _ in range(8):
        writer.write_until_acknowledged(2_000)
        writer.write(1_000)
        node.kill()
        writer.write(500)
        node.start()
    writer.finish()
    writer.assert_all_there_once_in_order()


@pytest.mark.single_node("it is about the size of one log")
@pytest.mark.slow
def test_a_million_messages_survive_rolls_restarts_and_a_crash(
    start_broker: StartBroker,
) -> None:
    node = start_broker({"storage.segment_bytes": 8 * MiB})
    create_topic(admin_of(node), "numbers", partitions=4)
    writer = Writer(node.bootstrap, "numbers", partitions=4, value_bytes=100)
    for end in (stop, kill, stop):
        writer.write(250_000)
        end(node)
        node.start()
    writer.write(250_000)
    writer.finish()
    node.restart()
    writer.assert_all_there_once_in_order()


# A client that has seen all nodes of a cluster go one by one starts over from the addresses that it
# was given, and if it finds nobody there either, it tries that again only after five minutes.
KEEP_DIALING = {"metadata_recovery_rebootstrap_trigger_ms": 3_000}


@pytest.mark.parametrize("protocol", [COOPERATIVE, NEW_PROTOCOL], ids=["classic", "consumer"])
@EITHER_END
def test_a_group_keeps_reading_over(
    end: Callable[[Broker], None], protocol: dict[str, object], start_broker: StartBroker
) -> None:
    node = start_broker(
        {
            "groups.initial_rebalance_delay_ms": 0,
            "groups.consumer_heartbeat_ms": 500,
            "groups.consumer_session_ms": 6_000,
        }
    )
    create_topic(admin_of(node), "events", partitions=4)
    client = Confluent(node.bootstrap)
    with (
        Member(node.bootstrap, "readers", ["events"], protocol, **KEEP_DIALING) as first,
        Member(node.bootstrap, "readers", ["events"], protocol, **KEEP_DIALING) as second,
    ):
        settle([first, second], "events", 4)
        client.write("events", [Message(b"before %d" % n, partition=n % 4) for n in range(40)])
        eventually(lambda: len(first.messages) + len(second.messages) >= 40)
        end(node)
        node.start()
        client.write("events", [Message(b"after %d" % n, partition=n % 4) for n in range(40)])
        eventually(
            lambda: (
                {m.value for m in first.messages + second.messages}
                >= {b"after %d" % n for n in range(40)}
            ),
            because="the group reads on",
        )


def test_a_node_starts_again_and_again(start_broker: StartBroker) -> None:
    node = start_broker()
    create_topic(admin_of(node), "events")
    for number in range(6):
        Confluent(node.bootstrap).write("events", [Message(b"%d" % number)])
        (stop if number % 2 else kill)(node)
        node.start()
    found = read_all(node.bootstrap, "events")
    assert [message.value for message in found] == [b"%d" % number for number in range(6)]


@pytest.mark.single_node("starts another node on the files of one")
def test_two_nodes_cannot_share_a_data_directory(start_broker: StartBroker) -> None:
    node = start_broker()
    if isinstance(node, KafkaPeer):
        pytest.skip("each Apache Kafka here has a directory of its own")
    with pytest.raises(AssertionError, match="ended with code"):
        start_broker(directory=node.directory)


# Topics that nobody created


@pytest.mark.parametrize("writer", CLIENTS, ids=lambda writer: writer.name)
def test_a_topic_is_created_by_its_first_message(
    writer: type[Client], start_broker: StartBroker
) -> None:
    node = start_broker({"topics.partitions": 3})
    client = writer(node.bootstrap)
    client.write("fresh", [Message(b"first")])
    assert [message.value for message in client.read("fresh", 1)] == [b"first"]
    assert len(admin_of(node).list_topics("fresh", timeout=10).topics["fresh"].partitions) == 3


def test_no_topic_is_created_by_itself_when_that_is_switched_off(
    start_broker: StartBroker,
) -> None:
    node = start_broker({"topics.auto_create": False})
    errors: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "topic.metadata.propagation.max.ms": 100}
    )
    producer.produce("missing", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(45) == 0
    unknown = {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
    assert {error.code() for error in errors} <= unknown
    assert errors
    assert "missing" not in admin_of(node).list_topics(timeout=10).topics
    kcat = subprocess.run(
        ["kcat", "-b", node.bootstrap, "-C", "-t", "missing", "-e"],
        capture_output=True,
        check=False,
        timeout=45,
    )
    assert b"Unknown topic" in kcat.stderr


def test_a_topic_that_is_only_asked_about_by_an_admin_is_not_created(
    start_broker: StartBroker,
) -> None:
    node = start_broker()
    admin = admin_of(node)
    assert "asked" not in admin.list_topics(timeout=10).topics
    Kcat(node.bootstrap).run("-L")
    future = admin.create_topics([NewTopic("asked")], validate_only=True)["asked"]
    assert future.exception(30) is None
    assert "asked" not in admin.list_topics(timeout=10).topics


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "goqueue-test", str(place)],
        capture_output=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.single_node(
    "its disk is too small for three copies; test_full_disk.py has a node of a cluster"
)
def test_a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself(
    small_disk: Path, start_broker: StartBroker
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(48 * MiB))
    node = start_broker(
        {"storage.free_bytes_min": 8 * MiB, "storage.segment_bytes": 4 * MiB},
        directory=small_disk,
    )
    create_topic(admin_of(node), "events")
    reports: list[tuple[KafkaError | None, int]] = []
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "retries": 0, "message.timeout.ms": 60_000}
    )

    def write(count: int) -> list[KafkaError]:
        reports.clear()
        for _ in range(count):
            producer.produce(
                "events",
                b"x" * 100_000,
                on_delivery=lambda error, report: reports.append((error, report.offset())),
            )
        assert producer.flush(45) == 0
        return [error for error, _ in reports if error]

    errors = eventually(lambda: write(20), because="the disk fills up")
    # The error that every client retries by itself; here it was told not to.
    assert {error.code() for error in errors} == {KafkaError.KAFKA_STORAGE_ERROR}
    eventually(lambda: write(1), because="not even a small write fits any more")
    assert write(1), "it stays full"
    stored = read_all(node.bootstrap, "events")
    assert len(stored) > 100
    ballast.unlink()
    eventually(lambda: not write(1), because="writing resumes when there is room")
    assert len(read_all(node.bootstrap, "events")) > len(stored)
    node.restart()
    assert len(read_all(node.bootstrap, "events")) > len(stored)
