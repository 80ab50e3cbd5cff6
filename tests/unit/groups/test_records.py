"""The bytes of the internal topic and of classic consumers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.groups import CommittedOffset, GroupType
from goqueue.groups.classic.embedded_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from goqueue.groups.records import (
    GroupKey,
    GroupRecord,
    MemberKey,
    MemberRecord,
    OffsetKey,
    decode_group,
    decode_key,
    decode_member,
    decode_offset,
    encode_group_key,
    encode_member_key,
    encode_membership,
    encode_offset,
    encode_offset_key,
)
from goqueue.model.errors import MalformedRequest, UnsupportedVersion

NAMES = st.text(max_size=20)
PARTITIONS = st.frozensets(st.tuples(NAMES, st.integers(0, 2**31 - 1)), max_size=8)


def test_an_offset_key_has_the_layout_that_tools_know() -> None:
    expected = bytes.fromhex("0001 0001 67 0002 7430 00000007")
    assert encode_offset_key("g", "t0", 7) == expected
    assert decode_key(expected) == OffsetKey("g", "t0", 7)


def test_an_offset_value_has_the_layout_that_tools_know() -> None:
    committed = CommittedOffset(offset=258, leader_epoch=3, metadata="hi", committed_at_ms=1)
    expected = bytes.fromhex("0003 0000000000000102 00000003 0002 6869 0000000000000001")
    assert encode_offset(committed) == expected
    assert decode_offset(expected) == committed


@pytest.mark.parametrize("expires_at_ms", [-1, 2])
def test_the_id_of_the_topic_comes_after_what_tools_read(expires_at_ms: int) -> None:
    plain = CommittedOffset(
        offset=258, metadata="hi", committed_at_ms=1, expires_at_ms=expires_at_ms
    )
    known = msgspec.structs.replace(plain, topic_id=bytes(range(16)))
    assert encode_offset(known) == encode_offset(plain) + bytes(range(16))
    assert decode_offset(encode_offset(known)) == known


def test_an_offset_with_a_lifetime_uses_the_version_that_has_one() -> None:
    committed = CommittedOffset(offset=258, committed_at_ms=1, expires_at_ms=2)
    expected = bytes.fromhex("0001 0000000000000102 0000 0000000000000001 0000000000000002")
    assert encode_offset(committed) == expected
    assert decode_offset(expected) == committed


def test_older_offset_values_are_read_and_newer_ones_are_no_deletions() -> None:
    oldest = bytes.fromhex("0000 0000000000000102 0000 0000000000000001")
    assert decode_offset(oldest) == CommittedOffset(offset=258, committed_at_ms=1)
    assert decode_offset(b"\xff\xff" + oldest) is None
    with pytest.raises(UnsupportedVersion, match=r"version 4.*upgrade this node"):
        decode_offset(b"\x00\x04" + oldest)


@pytest.mark.parametrize("decode", [decode_group, decode_member])
def test_membership_of_a_later_version_is_no_deletion(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(UnsupportedVersion, match=r"version 2.*upgrade this node"):
        decode(b"\x02rest")


def test_membership_keys_come_back() -> None:
    assert decode_key(encode_group_key("gö")) == GroupKey("gö")
    assert decode_key(encode_member_key("g", "m")) == MemberKey("g", "m")


def test_membership_values_come_back() -> None:
    group = GroupRecord(type=GroupType.CONSUMER, epoch=4, topics={"a": 3})
    assert decode_group(encode_membership(group)) == group
    member = MemberRecord(
        member_id="m",
        session_timeout_ms=1,
        rebalance_timeout_ms=2,
        protocols=(("range", b"\xff"),),
        assigned={"a": [1, 2]},
    )
    assert decode_member(encode_membership(member)) == member


@given(st.binary())
def test_random_bytes_are_never_a_crash(data: bytes) -> None:
    decode_key(data)
    for decode_value in (decode_offset, decode_group):
        with contextlib.suppress(UnsupportedVersion):
            decode_value(data)
    decode_member(b"\x01" + data)
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except MalformedRequest:
            pass


def test_a_subscription_has_the_layout_of_its_version() -> None:
    data = bytes.fromhex(
        "0003 00000001 0001 61 ffffffff"
        "00000001 0001 61 00000002 00000000 00000003"
        "00000009 0002 7232"
    )
    assert decode_subscription(data) == Subscription(
        topics=("a",), owned=frozenset({("a", 0), ("a", 3)}), generation=9, rack_id="r2"
    )


def test_the_oldest_subscription_claims_nothing() -> None:
    data = bytes.fromhex("0000 00000002 0001 61 0001 62 00000003 010203")
    assert decode_subscription(data) == Subscription(topics=("a", "b"))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@given(topics=st.lists(NAMES, max_size=5), owned=PARTITIONS)
def test_subscriptions_come_back(
    version: int, topics: list[str], owned: frozenset[tuple[str, int]]
) -> None:
    read = decode_subscription(encode_subscription(topics, owned=owned, version=version))
    assert read.topics == tuple(topics)
    assert read.owned == (owned if version >= 1 else frozenset())


@given(PARTITIONS)
def test_assignments_come_back(partitions: frozenset[tuple[str, int]]) -> None:
    assert decode_assignment(encode_assignment(partitions)) == partitions


def test_an_array_longer_than_its_bytes_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        decode_subscription(bytes.fromhex("0000 7fffffff"))
