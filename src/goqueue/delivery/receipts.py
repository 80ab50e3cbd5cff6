"""Receipts: what a consumer holds to prove which message it was given, and when.

A receipt is opaque to its holder. It names the queue, the lease and the message, and carries a
random number that only the receiver of that lease has seen.
"""

from __future__ import annotations

import struct
from binascii import Error as BinasciiError
from binascii import a2b_base64, b2a_base64
from typing import NamedTuple

from goqueue.model.errors import InvalidReceipt

_VERSION = 1
_LAYOUT = struct.Struct(">BHHIQqQ")
# A multiple of three bytes, so that the text needs no padding.
RECEIPT_LENGTH = _LAYOUT.size * 4 // 3
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")  # the signs we never write must not be read


class Receipt(NamedTuple):
    version: int
    partition: int
    place: int  # of the message in its lease
    queue: int
    lease: int
    offset: int
    nonce: int


def encode_receipt(
    queue: int, partition: int, lease: int, index: int, offset: int, nonce: int
) -> str:
    packed = _LAYOUT.pack(_VERSION, partition, index, queue, lease, offset, nonce)
    return b2a_base64(packed, newline=False).translate(_TO_URL).decode()


def decode_receipt(text: str) -> Receipt:
    """The fields of a receipt; whether they are true is for the lease to say."""
    if len(text) != RECEIPT_LENGTH:
        raise InvalidReceipt("it has the wrong length")
    try:
        packed = a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except (BinasciiError, UnicodeEncodeError):
        raise InvalidReceipt("it contains characters that receipts do not have") from None
    fields = _LAYOUT.unpack(packed)
    if fields[0] != _VERSION:
        raise InvalidReceipt("its format is not known here")
    return tuple.__new__(Receipt, fields)  # this is called for every message, and `_make` is slow
