"""Bounds that nobody needs to set."""

from __future__ import annotations

TRANSACTIONAL_ID_LENGTH_MAX = 8_000  # keys of records hold at most 32,767 bytes
PARTICIPANTS_MAX = 20_000  # partitions of one transaction; each is in every record of its state
EPOCH_LAST = (1 << 15) - 2  # the last that a producer is given; one more is left to turn it away
FAILED_WRITE_REST_MS = 1_000  # before a step that could not be written is tried again
CONCURRENT_WAIT_MS = 1_000  # a call waits so long for the last transaction to be completed
CONCURRENT_CALLS_MAX = 1_000  # per transactional id; one more is refused at once
EPOCH_TRANSACTIONS_MAX = 10_000  # decided by one record, which has to stay readable
QUERY_CALLS_MAX = 1_000  # that wait, per query; one more is refused at once
RUNS_REMEMBERED_MAX = 100  # of a query; a driver that is still older would count as a new one
RUN_NAME_LENGTH_MAX = 200
PATTERN_LENGTH_MAX = 1_024
PATTERN_MEMORY_BYTES_MAX = 1 << 20
