"""Ids of messages and of requests, as SQS writes them."""

from __future__ import annotations

from random import Random

ID_BYTES = 16
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_id(random: Random) -> str:
    return new_ids(random, 1)[0]


def new_ids(random: Random, count: int) -> list[str]:
    """UUIDs of version 4. Real chance costs a system call, so one is made for all of them."""
    digits = random.randbytes(ID_BYTES * count).hex()
    return [_write(digits[at : at + 2 * ID_BYTES]) for at in range(0, len(digits), 2 * ID_BYTES)]


def _write(text: str) -> str:
    variant = _VARIANTS[text[16]]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"
