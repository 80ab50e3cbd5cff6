"""Names that the broker gives to transactions whose clients give none.

Such a name contains a digest of the principal that began it, so that every node knows whose it is
without a lookup: `__transaction-{digest}-{random}`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache

from goqueue.broker.transactions.transactions import Transactions
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError, NotCoordinator
from goqueue.model.tenants import plain_name, prefix_of
from goqueue.transactions import TransactionState

# Names are reused, because all recently used names are remembered; but not at once, so that a
# repeated commit still finds its transaction.
GENERATED_PREFIX = "__transaction-"
GENERATED_REST_MS = 60_000
GENERATED_TRIES_MAX = 1_000  # to find a name that this node coordinates
SCAN_PAUSE_MS = 10_000  # between scans of all transactions for names to reuse

OWNER_DIGITS = 24  # of a digest; nobody can choose a principal that has the digest of another
OWNERS_CACHED_MAX = 10_000

_owned = re.compile(rf"{GENERATED_PREFIX}([0-9a-f]{{{OWNER_DIGITS}}})-[0-9a-f]+")

_RESTING = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)


class GeneratedNames:
    """Finds names that are not in use and that this node coordinates."""

    def __init__(
        self, clock: Clock, transactions: Transactions, new_id: Callable[[], bytes]
    ) -> None:
        self._clock = clock
        self._transactions = transactions
        self._new_id = new_id
        self._reusable: dict[str, list[str]] = {}  # by all that precedes the random part
        self._scanned_ms = -SCAN_PAUSE_MS

    def next(self, tenant_prefix: str, principal: str) -> str:
        """Return a name of a principal that was used long ago, or a new one."""
        now_ms = self._clock.now_ms()
        start = f"{tenant_prefix}{GENERATED_PREFIX}{owner_of(principal)}-"
        if start not in self._reusable:
            self._find_reusable(now_ms)
        reusable = self._reusable.pop(start, [])
        while reusable:
            name = reusable.pop()
            if self._is_resting(name, now_ms):
                if reusable:
                    self._reusable[start] = reusable
                return name
        for _ in range(GENERATED_TRIES_MAX):
            name = start + self._new_id().hex()
            if self._transactions.is_here(name):
                return name
        raise NotCoordinator(
            "This node coordinates no transactions now; retry, or give a transactional id."
        )

    def _find_reusable(self, now_ms: int) -> None:
        """Collect names that were used long ago, but not too often."""
        if 0 <= now_ms - self._scanned_ms < SCAN_PAUSE_MS:
            return
        self._scanned_ms = now_ms
        self._reusable = {}
        for one in self._transactions.all(states=_RESTING):
            name = one.transactional_id
            is_rested = one.updated_ms + max(GENERATED_REST_MS, one.timeout_ms) <= now_ms
            if is_rested and owner_in(name):
                start, _, _ = name.rpartition("-")
                self._reusable.setdefault(start + "-", []).append(name)

    def _is_resting(self, name: str, now_ms: int) -> bool:
        try:
            view = self._transactions.describe(name)
        except GoQueueError:
            return True  # It has been forgotten meanwhile.
        return view.state in _RESTING and view.updated_ms + GENERATED_REST_MS <= now_ms


@lru_cache(OWNERS_CACHED_MAX)
def owner_of(principal: str) -> str:
    """Return the digest of a principal that the names made for it contain."""
    return hashlib.sha256(principal.encode()).hexdigest()[:OWNER_DIGITS]


def owner_in(name: str) -> str:
    """Return the digest of the principal for which a name was made; empty if it was not."""
    found = _owned.fullmatch(plain_name(name))
    return "" if found is None else found[1]


def common_name(name: str) -> str:
    """Return the name that access rules have for all generated names of a tenant."""
    return prefix_of(name) + GENERATED_PREFIX
