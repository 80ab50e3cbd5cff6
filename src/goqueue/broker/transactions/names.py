"""Names that the broker gives to transactions whose clients give none."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.broker.transactions.transactions import Transactions
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError, NotCoordinator
from goqueue.model.tenants import prefix_of
from goqueue.transactions import TransactionState

# Names are reused, because all recently used names are remembered; but not at once, so that a
# repeated commit still finds its transaction.
GENERATED_PREFIX = "__transaction-"
GENERATED_REST_MS = 60_000
GENERATED_TRIES_MAX = 1_000  # to find a name that this node coordinates
SCAN_PAUSE_MS = 10_000  # between scans of all transactions for names to reuse

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
        self._reusable: dict[str, list[str]] = {}  # by the prefix of their tenant
        self._scanned_ms = -SCAN_PAUSE_MS

    def next(self, tenant_prefix: str = "") -> str:
        """Return a name of a tenant that was used long ago, or a new one."""
        now_ms = self._clock.now_ms()
        if tenant_prefix not in self._reusable:
            self._find_reusable(now_ms)
        reusable = self._reusable.pop(tenant_prefix, [])
        while reusable:
            name = reusable.pop()
            if self._is_resting(name, now_ms):
                if reusable:
                    self._reusable[tenant_prefix] = reusable
                return name
        for _ in range(GENERATED_TRIES_MAX):
            name = tenant_prefix + GENERATED_PREFIX + self._new_id().hex()
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
            prefix = prefix_of(one.transactional_id)
            is_ours = one.transactional_id.startswith(prefix + GENERATED_PREFIX)
            if is_ours and one.updated_ms + max(GENERATED_REST_MS, one.timeout_ms) <= now_ms:
                self._reusable.setdefault(prefix, []).append(one.transactional_id)

    def _is_resting(self, name: str, now_ms: int) -> bool:
        try:
            view = self._transactions.describe(name)
        except GoQueueError:
            return True  # It has been forgotten meanwhile.
        return view.state in _RESTING and view.updated_ms + GENERATED_REST_MS <= now_ms
