"""What each client library must find true, and what all of them must agree on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .clients import CLIENTS, Client, Confluent, Kcat, Message
from .topics import FOREVER

ODD_MESSAGES = [
    Message(b"plain"),
    Message(b"keyed", key=b"k"),
    Message(b"with headers", key=b"h", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"))),
    Message(None, key=b"tombstone"),
    Message("naïve – 漢字".encode(), key="schlüssel".encode()),
]


@pytest.mark.on_cluster
def test_a_message_comes_back_as_it_was_written(client: Client, topic: str) -> None:
    client.write(topic, ODD_MESSAGES)
    found = client.read(topic, len(ODD_MESSAGES))
    assert [message.content for message in found] == ODD_MESSAGES
    assert [message.offset for message in found] == list(range(len(ODD_MESSAGES)))


def test_every_client_reads_what_another_wrote(client: Client, bootstrap: str, topic: str) -> None:
    client.write(topic, ODD_MESSAGES)
    written = client.read(topic, len(ODD_MESSAGES))
    for reader in CLIENTS:
        assert reader(bootstrap).read(topic, len(ODD_MESSAGES)) == written, reader.name


@pytest.mark.parametrize(
    ("writer", "codec"),
    [
        pytest.param(writer, codec, id=f"{writer.name}-{codec}")
        for writer in CLIENTS
        for codec in writer.codecs
    ],
)
def test_compressed_messages_are_read_by_every_client(
    writer: type[Client], codec: str, bootstrap: str, topic: str
) -> None:
    messages = [
        Message(f"{number} ".encode() + b"abc" * 200, key=b"%d" % number) for number in range(100)
    ]
    writer(bootstrap).write(topic, messages, codec=codec)
    for reader in CLIENTS:
        if codec in reader.codecs:
            found = reader(bootstrap).read(topic, len(messages))
            assert [message.content for message in found] == messages, reader.name


def test_an_explicit_partition_is_kept(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    client.write(
        topic, [Message(b"to %d" % partition, partition=partition) for partition in (2, 0, 1)]
    )
    found = {message.partition: message.value for message in client.read(topic, 3)}
    assert found == {0: b"to 0", 1: b"to 1", 2: b"to 2"}


def test_a_key_goes_to_the_same_partition_whoever_writes_it(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=7)
    keys = [f"key-{number}".encode() for number in range(50)]
    for writer in CLIENTS:
        writer(bootstrap).write(topic, [Message(writer.name.encode(), key=key) for key in keys])
    homes: dict[bytes | None, set[int | None]] = {}
    for message in Confluent(bootstrap).read(topic, len(CLIENTS) * len(keys)):
        homes.setdefault(message.key, set()).add(message.partition)
    assert {key: len(partitions) for key, partitions in homes.items()} == dict.fromkeys(keys, 1)


@pytest.mark.parametrize(
    "writer", [each for each in CLIENTS if each is not Kcat], ids=lambda writer: writer.name
)
def test_a_producers_timestamp_is_kept(
    writer: type[Client], bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**FOREVER)
    times = [1_600_000_000_000, 1_500_000_000_000, 1_700_000_000_123]
    writer(bootstrap).write(topic, [Message(b"at", timestamp=time) for time in times])
    for reader in CLIENTS:
        found = reader(bootstrap).read(topic, len(times))
        assert [message.timestamp for message in found] == times, reader.name


def test_order_within_a_partition_is_the_order_of_writing(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    numbers = range(3_000)
    client.write(topic, [Message(b"%06d" % n, key=b"%d" % (n % 10)) for n in numbers])
    seen: dict[bytes | None, list[bytes | None]] = {}
    for message in client.read(topic, len(numbers)):
        seen.setdefault(message.key, []).append(message.value)
    assert sum(len(values) for values in seen.values()) == len(numbers)
    assert all(values == sorted(values, key=str) for values in seen.values())


@pytest.mark.on_cluster
def test_a_group_goes_on_where_it_has_committed(client: Client, topic: str, group: str) -> None:
    client.write(topic, [Message(b"first %d" % number) for number in range(10)])
    first = client.read(topic, 10, group=group)
    client.write(topic, [Message(b"second %d" % number) for number in range(5)])
    second = client.read(topic, 5, group=group)
    assert [message.offset for message in first + second] == list(range(15))


def test_one_clients_commit_is_where_another_goes_on(
    bootstrap: str, topic: str, group: str
) -> None:
    messages = [Message(b"%d" % number) for number in range(4 * len(CLIENTS))]
    Confluent(bootstrap).write(topic, messages)
    seen: list[Message] = []
    for reader in CLIENTS:
        seen += reader(bootstrap).read(topic, 4, group=group)
    assert [message.content for message in seen] == messages


def test_two_groups_each_see_every_message(client: Client, topic: str, group: str) -> None:
    messages = [Message(b"%d" % number) for number in range(20)]
    client.write(topic, messages)
    for each in (f"{group}-a", f"{group}-b"):
        assert [message.content for message in client.read(topic, 20, group=each)] == messages
