"""Joining the parts of a response."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from goqueue.wire.parts import (
    JOINED_BYTES_MAX,
    JOINED_PART_BYTES_MAX,
    FileRange,
    Part,
    joined,
)
from tests.simulation.disk import SimulatedDisk

SMALL, LARGE = b"s", bytes(JOINED_PART_BYTES_MAX + 1)


def in_file(length: int = 5) -> FileRange:
    return FileRange(SimulatedDisk().create("records"), 0, length)


FILE = in_file()


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([SMALL], [SMALL]),
        ([SMALL] * 200, [SMALL * 200]),
        ([bytearray(SMALL), memoryview(SMALL), b""], [SMALL * 2]),
        ([SMALL, SMALL, FILE, SMALL, SMALL], [SMALL * 2, FILE, SMALL * 2]),
        ([FILE], [FILE]),
        ([b"", FILE, b"", FILE], [b"", FILE, b"", FILE]),
        ([FILE, LARGE, SMALL, LARGE], [FILE, LARGE, SMALL, LARGE]),
    ],
)
def test_small_parts_are_joined_with_their_neighbours(
    parts: list[Part], expected: Sequence[Part]
) -> None:
    assert joined(parts) == expected


def test_a_large_part_beside_others_is_not_copied() -> None:
    parts: list[Part] = [SMALL, *[LARGE] * 4, SMALL]
    assert all(one is LARGE for one in joined(parts)[1:-1])


def test_what_is_joined_has_a_limit() -> None:
    parts: list[Part] = [bytes(JOINED_PART_BYTES_MAX)] * 9
    assert [len(one) for one in joined(parts)] == [
        JOINED_BYTES_MAX,
        JOINED_BYTES_MAX,
        JOINED_PART_BYTES_MAX,
    ]
