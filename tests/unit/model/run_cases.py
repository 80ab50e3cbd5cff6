"""Batches for runs, sound and hostile, and everything that is said about them.

Used by the unit tests and by the run with the sanitizers, which has no test runner.
"""

from __future__ import annotations

import random
from types import ModuleType

from goqueue.model.batch import HEADER_BYTES, BatchHeader, Record, encode_batch
from goqueue.model.run_reference import Span

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
    said: list[object] = [module.is_plain(data, *span, BYTES_MAX, *TIMES) for span in spans]
    if all(end - start >= HEADER_BYTES for start, end in spans):
        said.append(module.gather_run(data, spans, 1 << 40, 7, BatchHeader))
    return said
