"""Batches for runs, sound and hostile, and everything that is said about them.

Used by the unit tests and by the run with the sanitizers, which has no test runner.
"""

from __future__ import annotations

import random
from array import array
from types import ModuleType

from goqueue.model.batch import HEADER_BYTES, Record, encode_batch

Span = tuple[int, int]

NOW_MS = 1_000_000
TIMES = (NOW_MS - 1000, NOW_MS + 1000)
BYTES_MAX = 5000


def batch(*, count: int = 1, size: int = 10, timestamp_ms: int = NOW_MS) -> bytes:
    record = Record(b"key", b"v" * size, (), timestamp_ms)
    return bytes(encode_batch([record] * count))


def laid_out(batches: list[bytes], gap: bytes = b"..") -> tuple[bytes, list[Span]]:
    """Batches with other bytes between them, and where they are."""
    data, spans = b"", []
    for one in batches:
        data += gap
        spans.append((len(data), len(data) + len(one)))
        data += one
    return data, spans


def packed(*spans: Span) -> bytes:
    return array("i", [number for span in spans for number in span]).tobytes()


def hostile_run(chance: random.Random) -> tuple[bytes, list[Span]]:
    """Batches of which some bytes are changed and some are missing, the last up to the end."""
    batches = []
    for _ in range(chance.randint(1, 3)):
        one = bytearray(batch(count=chance.randint(1, 3), size=chance.randint(0, 40)))
        for _ in range(chance.choice([0, 1, 4])):
            one[chance.randrange(len(one))] = chance.randrange(256)
        batches.append(bytes(one[: chance.choice([len(one), chance.randint(0, len(one))])]))
    return laid_out(batches, gap=b"")


def outcomes(module: ModuleType, data: bytes, spans: list[Span]) -> list[object]:
    """What a module says of a run, whether or not it should be asked."""
    limits = (BYTES_MAX, *TIMES)
    said: list[object] = [module.are_plain(data, packed(span), *limits) for span in spans]
    are_plain = module.are_plain(data, packed(*spans), *limits)
    assert are_plain == all(said)
    if all(end - start >= HEADER_BYTES for start, end in spans):
        # The first span alone, then the others, from a point of view three bytes further on.
        others = packed(*((start - 3, end - 3) for start, end in spans[1:]))
        run = module.gather_run(data, [(packed(spans[0]), 0), (others, 3)], 1 << 40, 7)
        said.append(run)
        if are_plain:
            said += [module.mark_run(run[0], 10, due, 150, NOW_MS - 1, 5) for due in (0, 200)]
    return said
