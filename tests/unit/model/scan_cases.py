"""Logs to scan, sound and hostile, and everything that is said about them.

Used by the unit tests and by the run with the sanitizers, which has no test runner.
"""

from __future__ import annotations

import random
import struct
from types import ModuleType

from goqueue.model.batch import CONTROL, HEADER_BYTES, Header, Record, encode_batch, stamp
from goqueue.model.compression import Compression
from goqueue.model.errors import CorruptBatch

TRACE = b"0af7651916cd43dd8448eb211c80319c"
PARENT = b"00-" + TRACE + b"-b7ad6b7169203331-01"
ROOT = b"Sampled=1;Root=1-" + TRACE[:8] + b"-" + TRACE[8:] + b";Parent=53995c3f42cd8ad8"
FIRST_OFFSET = 40

_NAMES = ("traceparent", "AWSTraceHeader", "tenant", "")
_CONTENTS = (PARENT, ROOT, PARENT.upper(), PARENT[:-1], ROOT[:-30], b"", b"blue", None)
# Key, trace id, name and content of a header, text.
CONDITIONS = (
    (None, None, None, None, None),
    (b"k1", None, None, None, None),
    (b"", None, None, None, None),
    (None, TRACE, None, None, None),
    (None, None, b"tenant", None, None),
    (None, None, b"tenant", b"blue", None),
    (None, None, None, None, b"lu"),
    (b"k2", TRACE, b"tenant", b"blue", b"ue"),
)


def log_of(chance: random.Random, *, codec: Compression = Compression.NONE) -> bytes:
    """Some consecutive batches from `FIRST_OFFSET` on."""
    batches, offset = [], FIRST_OFFSET
    for _ in range(chance.randint(1, 3)):
        records = [_record(chance) for _ in range(chance.randint(1, 4))]
        one = encode_batch(records, codec=codec, attributes=chance.choice([0, 0, 0, CONTROL]))
        stamp(one, base_offset=offset, leader_epoch=3)
        batches.append(bytes(one))
        offset += len(records)
    return b"".join(batches)


def hostile_log(chance: random.Random) -> bytes:
    """The same with some bytes changed, and maybe some missing at the end."""
    data = bytearray(log_of(chance))
    for _ in range(chance.choice([0, 1, 4])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.choice([len(data), chance.randint(0, len(data))])])


def outcomes(module: ModuleType, data: bytes) -> list[object]:
    """What a module returns for a log, and for its bytes after a header."""
    payload = data[HEADER_BYTES:]
    count = struct.unpack_from(">i", data, 57)[0] if len(data) >= HEADER_BYTES else 1
    answers: list[object] = [_outcome(module, "hashes", data, 0, FIRST_OFFSET)]
    for wanted in CONDITIONS:
        answers.append(_outcome(module, "find", data, 0, FIRST_OFFSET, *wanted))
        answers.append(_outcome(module, "find_records", payload, min(count, 9), 7, *wanted))
    answers.append(_outcome(module, "record_hashes", payload, min(count, 9)))
    answers.append(module.bloom(data))
    return answers


def _outcome(module: ModuleType, name: str, *arguments: object) -> object:
    try:
        return getattr(module, name)(*arguments)
    except CorruptBatch:
        return "corrupt"


def _record(chance: random.Random) -> Record:
    key = chance.choice([None, b"", b"k1", b"k2", b"a key of more than eight bytes"])
    value = chance.choice([None, b"", b"blue", b"x" * chance.randint(0, 90)])
    headers: list[Header] = [
        (chance.choice(_NAMES), chance.choice(_CONTENTS)) for _ in range(chance.randint(0, 3))
    ]
    return Record(key, value, tuple(headers), 1000 + chance.randint(-5, 5))
