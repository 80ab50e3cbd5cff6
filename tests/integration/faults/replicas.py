"""Whether all replicas of a partition are the same, byte for byte."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from .rules import Violation

# Each node compacts its own replicas when it finds it useful, so their bytes may differ.
COMPACTED = ("__consumer_offsets", "__transaction_state", "__delivery", "__schemas")


def digests(segments: Iterable[Path], root: Path) -> dict[str, tuple[int, str]]:
    """Size and digest of each partition's log, however it is cut into segments."""
    logs: dict[str, list[Path]] = defaultdict(list)
    for segment in segments:
        logs[str(segment.parent.relative_to(root))].append(segment)
    found = {}
    for partition, files in logs.items():
        digest, size = hashlib.sha256(), 0
        for file in sorted(files):
            data = file.read_bytes()
            digest.update(data)
            size += len(data)
        found[partition] = (size, digest.hexdigest())
    return found


def different(nodes: Mapping[int, Mapping[str, tuple[int, str]]]) -> list[Violation]:
    """Partitions whose replicas are not the same on every node."""
    partitions = sorted({one for logs in nodes.values() for one in logs})
    found = []
    for partition in partitions:
        copies = {number: logs.get(partition, (0, "")) for number, logs in nodes.items()}
        if len(set(copies.values())) > 1:
            sizes = ", ".join(
                f"node {number}: {size} bytes" for number, (size, _) in copies.items()
            )
            found.append(Violation("replicas differ", partition, sizes))
    return found
