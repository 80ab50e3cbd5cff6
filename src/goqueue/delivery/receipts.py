"""Receipts: what a consumer holds to prove which message it was given, and when.

A receipt is opaque to its holder. Its head names the queue and the lease, and carries a random
number that only the receiver of that lease has seen; its tail is the place of the message in the
lease. Making and reading one is work for every message, so a lease writes its head once, tails
come from a table, and a receipt that is good is never unpacked: its head is looked up as it is.
"""

from __future__ import annotations

import struct
from binascii import Error as BinasciiError
from binascii import a2b_base64, b2a_base64
from typing import NamedTuple

from goqueue.delivery.settings import RECEIVE_MESSAGES_MAX
from goqueue.model.errors import InvalidReceipt, StaleReceipt

_VERSION = 2
# Both are multiples of three bytes, so that their texts can be joined and need no padding.
_HEAD = struct.Struct(">BHIQQx")
_TAIL = struct.Struct(">xH")
HEAD_LENGTH = _HEAD.size * 4 // 3
RECEIPT_LENGTH = HEAD_LENGTH + _TAIL.size * 4 // 3
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")  # the signs we never write must not be read


class ReceiptHead(NamedTuple):
    version: int
    partition: int
    queue: int
    lease: int
    nonce: int


def encode_head(*, queue: int, partition: int, lease: int, nonce: int) -> str:
    """What the receipts of one lease begin with."""
    return _text(_HEAD.pack(_VERSION, partition, queue, lease, nonce))


def check_receipt(text: str) -> ReceiptHead:
    """The head of a receipt that is well formed; whether it is true is for the lease to say."""
    if len(text) != RECEIPT_LENGTH:
        raise InvalidReceipt("it has the wrong length")
    try:
        packed = a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except (BinasciiError, UnicodeEncodeError):
        raise InvalidReceipt("it contains characters that receipts do not have") from None
    head = ReceiptHead._make(_HEAD.unpack_from(packed))
    if head.version != _VERSION:
        raise InvalidReceipt("its format is not known here")
    return head


def refusal(text: str) -> InvalidReceipt | StaleReceipt:
    """Why a receipt that no lease knows is of no use."""
    try:
        check_receipt(text)
    except InvalidReceipt as error:
        return error
    return StaleReceipt()


def _text(packed: bytes) -> str:
    return b2a_base64(packed, newline=False).translate(_TO_URL).decode()


# The tails by place, and the places by tail; a lease covers what one call received.
TAILS = tuple(_text(_TAIL.pack(place)) for place in range(RECEIVE_MESSAGES_MAX))
PLACES = {tail: place for place, tail in enumerate(TAILS)}
