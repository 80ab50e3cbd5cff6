"""Message ids and request ids in the format of SQS."""

from __future__ import annotations

from random import Random

ID_BYTES = 16
AHEAD = 64  # ids generated together when they are needed one by one
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_id(random: Random) -> str:
    return new_ids(random, 1)[0]


def new_ids(random: Random, count: int) -> list[str]:
    """Generate UUIDs (version 4) with one system call for random bytes."""
    digits = random.randbytes(ID_BYTES * count).hex()
    return [_write(digits[at : at + 2 * ID_BYTES]) for at in range(0, len(digits), 2 * ID_BYTES)]


class Ids:
    """Generates ids one by one from a prepared supply."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ahead: list[str] = []

    def next(self) -> str:
        if not self._ahead:
            self._ahead = new_ids(self._random, AHEAD)
        return self._ahead.pop()


def _write(text: str) -> str:
    variant = _VARIANTS[text[16]]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"
