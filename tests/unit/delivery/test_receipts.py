"""Receipts are opaque, exact and checked."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery.receipts import RECEIPT_LENGTH, decode_receipt, encode_receipt
from goqueue.model.errors import InvalidReceipt

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))


@given(U16, U16, U32, U64, st.integers(0, 2**63 - 1), U64)
def test_a_receipt_says_what_was_put_in(
    partition: int, place: int, queue: int, lease: int, offset: int, nonce: int
) -> None:
    text = encode_receipt(queue, partition, lease, place, offset, nonce)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
    assert decode_receipt(text) == (1, partition, place, queue, lease, offset, nonce)


@given(st.one_of(st.text(max_size=60), st.text(min_size=RECEIPT_LENGTH, max_size=RECEIPT_LENGTH)))
def test_any_other_text_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidReceipt):
        assert decode_receipt(text).version == 1


@pytest.mark.parametrize("text", ["", "x" * 43, "+" * 44, "/" * 44, "=" * 44, "é" * 44, "A" * 44])
def test_refusals_say_what_to_do(text: str) -> None:
    with pytest.raises(InvalidReceipt, match="exactly as it was received"):
        decode_receipt(text)
