"""Features: levels of behaviour that clients and tools look for, as ApiVersions lists them.

Only what is implemented is announced, at the one level that is implemented, so no level can be
changed:

- `group.version` 1: groups whose assignment the broker computes (KIP-848).
- `metadata.version` 25, which is 4.0-IV3: the requests of that release and their versions.
- `share.version` 1: share groups (KIP-932).
- `transaction.version` 2: every transaction has an epoch of its own, and partitions join by being
  written to (KIP-890).

Not implemented: Streams groups (`streams.version`), changes of the voters by Kafka's tools
(`kraft.version`) and eligible leader replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LEVELS: Final[Mapping[str, int]] = {
    "group.version": 1,
    "metadata.version": 25,
    "share.version": 1,
    "transaction.version": 2,
}
# Features never change, so the epoch stays at its first value.
EPOCH: Final = 0
