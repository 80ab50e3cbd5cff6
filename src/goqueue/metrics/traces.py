"""The trace of a request, as tracing systems write it into headers.

An exemplar leads to a trace only if a collector has it, so only sampled traces count.
"""

from __future__ import annotations

import re

# W3C Trace Context; the last flag says that the trace is sampled.
_PARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf](?:-.*)?"
)
# AWS X-Ray: fields in any order, of which the root is the trace.
_ROOT = re.compile(rb"(?:^|;)\s*Root=1-([0-9a-f]{8})-([0-9a-f]{24})\s*(?:;|$)")
_IS_SAMPLED = re.compile(rb"(?:^|;)\s*Sampled=1\s*(?:;|$)")
HEADER_BYTES_MAX = 500  # longer ones are not read


def sampled_trace(header: bytes) -> str:
    """Return the trace id in a `traceparent` or `AWSTraceHeader`; empty if it is not sampled."""
    if len(header) > HEADER_BYTES_MAX:
        return ""
    if parent := _PARENT.fullmatch(header.strip()):
        return parent[1].decode()
    if (root := _ROOT.search(header)) and _IS_SAMPLED.search(header):
        return (root[1] + root[2]).decode()
    return ""
