"""Receipts are opaque, exact and checked."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery.receipts import (
    HEAD_LENGTH,
    PLACES,
    RECEIPT_LENGTH,
    TAILS,
    check_receipt,
    encode_head,
)
from goqueue.delivery.settings import RECEIVE_MESSAGES_MAX
from goqueue.model.errors import InvalidReceipt

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))


@given(U16, U32, U64, U64, st.sampled_from(TAILS))
def test_a_receipt_says_what_was_put_in(
    partition: int, queue: int, lease: int, nonce: int, tail: str
) -> None:
    head = encode_head(queue=queue, partition=partition, lease=lease, nonce=nonce)
    assert len(head) == HEAD_LENGTH
    assert re.fullmatch(r"[A-Za-z0-9_-]+", head + tail)
    assert check_receipt(head + tail) == (2, partition, queue, lease, nonce)


def test_every_message_of_a_call_has_a_tail_of_its_own() -> None:
    assert len(set(TAILS)) == RECEIVE_MESSAGES_MAX
    assert [PLACES[tail] for tail in TAILS] == list(range(RECEIVE_MESSAGES_MAX))


@given(st.one_of(st.text(max_size=60), st.text(min_size=RECEIPT_LENGTH, max_size=RECEIPT_LENGTH)))
def test_any_other_text_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidReceipt):
        assert check_receipt(text).version == 2


@pytest.mark.parametrize(
    "text",
    ["", "x" * 35, "+" * 36, "/" * 36, "=" * 36, "é" * 36, "A" * 36, "Ag" + "A" * 33 + "="],
)
def test_refusals_say_what_to_do(text: str) -> None:
    with pytest.raises(InvalidReceipt, match="exactly as it was received"):
        check_receipt(text)
