"""kcat, the command-line client: what only it does."""

from __future__ import annotations

import json
from collections.abc import Callable

from .clients import Confluent, Kcat, Message
from .topics import FOREVER, watermarks


def test_it_lists_brokers_and_topics(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    listing = json.loads(Kcat(bootstrap).run("-L", "-J", "-t", topic))
    assert set(bootstrap.split(",")) == {broker["name"] for broker in listing["brokers"]}
    (described,) = listing["topics"]
    assert described["topic"] == topic
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert listing["controllerid"] in [broker["id"] for broker in listing["brokers"]]


def test_it_finds_offsets_by_time(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**FOREVER)
    messages = [Message(b"%d" % time, timestamp=time) for time in (1_000_000, 2_000_000, 3_000_000)]
    Confluent(bootstrap).write(topic, messages)
    kcat = Kcat(bootstrap)

    def offset_at(time: int) -> bytes:
        return kcat.run("-Q", "-t", f"{topic}:0:{time}").split(b"offset ")[1].strip()

    assert [offset_at(time) for time in (1, 2_000_000, 2_000_001, -2, -1)] == [
        *(b"0", b"1", b"2", b"0", b"3")
    ]


def test_it_stops_at_the_end_of_the_topic(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    kcat = Kcat(bootstrap)
    kcat.write(topic, [Message(b"%d" % number, partition=number % 3) for number in range(9)])
    printed = kcat.run("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%p:%o:%s\n")
    assert sorted(printed.splitlines()) == sorted(
        b"%d:%d:%d" % (number % 3, number // 3, number) for number in range(9)
    )


def test_it_reads_the_last_messages_by_negative_offset(bootstrap: str, topic: str) -> None:
    kcat = Kcat(bootstrap)
    kcat.write(topic, [Message(b"%d" % number) for number in range(10)])
    assert watermarks(bootstrap, topic) == (0, 10)
    printed = kcat.run("-C", "-t", topic, "-o", "-3", "-e", "-q")
    assert printed.split() == [b"7", b"8", b"9"]
