"""Scans of whole logs for keys and trace ids, by the compiled functions if they were built."""

from __future__ import annotations

from goqueue.model.scanning.reference import (
    AT_COMPRESSED,
    AT_DAMAGE,
    AT_END,
    KEY_SEED,
    TRACE_DIGITS,
    TRACE_SEED,
    Wanted,
    hash_of,
    probes,
    trace_of,
)

try:
    from goqueue.model.scanning._scan import bloom, find, find_records, hashes, record_hashes

    IS_COMPILED = True
except ImportError:  # There was no compiler where GoQueue was installed.
    from goqueue.model.scanning.reference import (
        bloom,
        find,
        find_records,
        hashes,
        record_hashes,
    )

    IS_COMPILED = False

__all__ = [
    "AT_COMPRESSED",
    "AT_DAMAGE",
    "AT_END",
    "IS_COMPILED",
    "KEY_SEED",
    "TRACE_DIGITS",
    "TRACE_SEED",
    "Wanted",
    "bloom",
    "find",
    "find_records",
    "hash_of",
    "hashes",
    "probes",
    "record_hashes",
    "trace_of",
]
