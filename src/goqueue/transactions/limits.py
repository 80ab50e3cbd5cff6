"""Bounds that need no setting."""

from __future__ import annotations

TRANSACTIONAL_ID_LENGTH_MAX = 8_000  # keys of records hold at most 32,767 bytes
PARTICIPANTS_MAX = 20_000  # partitions of one transaction; each is in every record of its state
EPOCH_LAST = (1 << 15) - 2  # the last that a producer gets; one more is reserved to fence it
FAILED_WRITE_REST_MS = 1_000  # before a step that could not be written is retried
CONCURRENT_WAIT_MS = 1_000  # the longest wait of a call for the last transaction to complete
CONCURRENT_CALLS_MAX = 1_000  # per transactional id; one more is refused at once
EPOCH_TRANSACTIONS_MAX = 10_000  # decided by one record, which has to stay readable
QUERY_CALLS_MAX = 1_000  # waiting, per query; one more is refused at once
RUNS_REMEMBERED_MAX = 100  # of a query; an older driver would count as a new run
RUN_NAME_LENGTH_MAX = 200
PATTERN_LENGTH_MAX = 1_024
PATTERN_MEMORY_BYTES_MAX = 1 << 20
