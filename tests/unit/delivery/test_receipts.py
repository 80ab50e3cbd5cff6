"""Receipts are opaque, tell their message, and cannot be invented."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery.leases import (
    HEAD_LENGTH,
    POSITIONS,
    SECRET_BYTES,
    SERIAL_MAX,
    TAILS,
    Receipts,
    check_receipt,
    position_in,
)
from goqueue.delivery.settings import RECEIVE_MESSAGES_MAX
from goqueue.model.errors import InvalidReceipt

SECRET = bytes(range(SECRET_BYTES))
OFFSETS = st.integers(0, 2**56 - 1 - RECEIVE_MESSAGES_MAX)
LEASES = st.one_of(
    st.tuples(OFFSETS, st.integers(1, 20)).map(
        lambda some: (range(some[0], some[0] + some[1]), b"\x01" * some[1])
    ),
    st.lists(st.tuples(OFFSETS, st.integers(1, 2**16 - 1)), min_size=1, max_size=20).map(
        lambda some: ([one for one, _ in some], [attempt for _, attempt in some])
    ),
)


@given(st.integers(0, 2**24 - 1), st.integers(0, 2**24 - 1), st.integers(0, SERIAL_MAX), LEASES)
def test_a_receipt_says_what_was_put_in(
    queue: int, partition: int, serial: int, lease: tuple[list[int], list[int]]
) -> None:
    offsets, attempts = lease
    head, tails = Receipts(queue, SECRET).write(partition, serial, offsets, attempts)
    assert len(head) == HEAD_LENGTH
    for place, tail in enumerate(tails):
        assert re.fullmatch(r"[A-Za-z0-9_-]+", head + tail)
        said = (queue, partition, offsets[place], attempts[place], serial)
        assert check_receipt(head + tail) == said
        assert Receipts(queue, SECRET).read(head + tail) == said
        assert position_in(tail) == place
        for others in (Receipts(queue, SECRET[::-1]), Receipts((queue + 1) % 2**24, SECRET)):
            with pytest.raises(InvalidReceipt):
                others.read(head + tail)


@given(LEASES, st.data())
def test_no_other_text_is_a_receipt(
    lease: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    """Whichever sign is another one: it is refused, or it is another receipt of the same lease."""
    offsets, attempts = lease
    receipts = Receipts(7, SECRET)
    head, tails = receipts.write(3, 11, offsets, attempts)
    issued = {head + tail for tail in tails}
    receipt = head + data.draw(st.sampled_from(list(tails)))
    place = data.draw(st.integers(0, len(receipt) - 1))
    sign = data.draw(st.sampled_from("ABCabc019-_"))
    forged = receipt[:place] + sign + receipt[place + 1 :]
    if forged not in issued:
        with pytest.raises(InvalidReceipt):
            receipts.read(forged)


def test_every_message_of_a_call_has_a_tail_of_its_own() -> None:
    assert len(set(TAILS)) == RECEIVE_MESSAGES_MAX
    assert [POSITIONS[tail] for tail in TAILS] == list(range(RECEIVE_MESSAGES_MAX))


@given(st.one_of(st.text(max_size=70), st.text(min_size=44, max_size=44)))
def test_any_other_text_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidReceipt):
        check_receipt(text)
    with pytest.raises(InvalidReceipt):
        Receipts(7, SECRET).read(text)


@pytest.mark.parametrize(
    "text",
    ["", "x" * 43, "+" * 44, "/" * 44, "=" * 44, "é" * 44, "A" * 44, "Aw" + "A" * 41 + "="],
)
def test_refusals_say_what_to_do(text: str) -> None:
    with pytest.raises(InvalidReceipt, match="exactly as it was received"):
        check_receipt(text)
