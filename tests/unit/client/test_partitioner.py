"""The partitioner agrees with every other Kafka client."""

from __future__ import annotations

import random

import pytest
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from goqueue.client.partitioner import StickyPartitioner, murmur2, partition_of_key


# From Kafka's own UtilsTest, as signed numbers.
@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_values_of_the_java_client(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFF_FFFF


# From librdkafka's unit test of `murmur2`.
@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"kafka", 0xD067CF64),
        (b"giberish123456789", 0x8F552B0C),
        (b"1234", 0x9FC97B14),
        (b"234", 0xE7C009CA),
        (b"34", 0x873930DA),
        (b"4", 0x5A4B5CA1),
        (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x78424F1C),
        (b"", 0x106E08D9),
    ],
)
def test_murmur2_gives_the_values_of_librdkafka(data: bytes, hashed: int) -> None:
    assert murmur2(data) == hashed


def test_murmur2_agrees_with_another_implementation_on_anything() -> None:
    rng = random.Random(1)
    for length in range(64):
        data = rng.randbytes(length)
        assert murmur2(data) == kafka_python_murmur2(data) & 0xFFFF_FFFF


def test_a_key_always_goes_to_the_same_partition() -> None:
    assert [partition_of_key(b"customer-7", 12) for _ in range(3)] == [
        partition_of_key(b"customer-7", 12)
    ] * 3
    assert {partition_of_key(b"%d" % number, 6) for number in range(200)} == set(range(6))


def test_keyless_records_stay_together_until_a_batch_is_sent() -> None:
    sticky = StickyPartitioner(random.Random(3))
    first = sticky.choose("orders", 4)
    assert {sticky.choose("orders", 4) for _ in range(20)} == {first}
    sticky.move_on("orders", first)
    assert sticky.choose("orders", 4) != first


def test_a_batch_of_another_partition_moves_nothing() -> None:
    sticky = StickyPartitioner(random.Random(3))
    first = sticky.choose("orders", 4)
    sticky.move_on("orders", (first + 1) % 4)
    sticky.move_on("payments", first)
    assert sticky.choose("orders", 4) == first


def test_a_topic_of_one_partition_has_nowhere_to_move_to() -> None:
    sticky = StickyPartitioner(random.Random(3))
    sticky.choose("orders", 1)
    sticky.move_on("orders", 0)
    assert sticky.choose("orders", 1) == 0
