"""Fair shares: while one tenant keeps the consumers busy, messages of other tenants go first.

The key of a message names its tenant; a message without a key belongs to no tenant. A tenant with
much in flight, or that has recently used much of the consumers' time, is noisy. Chosen messages of
a noisy tenant are set aside, in log order, and choosing continues behind them, so that messages
behind a backlog are found. What was set aside is delivered when nothing else is available, and one
message from time to time in any case. A tenant stays noisy until nothing of it is set aside.

All of this follows from what is in flight, so nothing is persisted: after a restart no tenant is
noisy, and what was set aside is still in the log.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

# A tenant is noisy with this many in flight, if they exceed this fraction of all in flight.
NOISY_OUT_MIN = 30
NOISY_SHARE = 0.1
# It is also noisy with this fraction of the recent holding time, once the queue has handled this
# many messages. Times decay by half from period to period.
HANDLED_MIN = 30
PERIOD_MS = 15_000
# Messages set aside per queue, at about 250 bytes each; beyond it noisy tenants are served.
ASIDE_MAX = 50_000
# Tenants with nothing in flight whose holding times are kept.
IDLE_MAX = 10_000
# While other tenants go first, one in this many messages is one set aside, to avoid starvation.
TURN = 16

STALE_MAX = 64  # stale heap entries allowed besides one per waiting tenant

ASIDE_MS = -1  # due time that marks a message as set aside: it is not due by time

Place = tuple[int, int]  # partition and offset


class Fading:
    """A sum that decays by half each period."""

    __slots__ = ("_amount", "_period")

    def __init__(self) -> None:
        self._amount = 0
        self._period = 0

    def add(self, amount: int, now_ms: int) -> None:
        self._amount = self.at(now_ms) + amount
        self._period = now_ms // PERIOD_MS

    def at(self, now_ms: int) -> int:
        # Shifting by 63 already clears any amount.
        return self._amount >> min(63, max(0, now_ms // PERIOD_MS - self._period))


class Tenant:
    """One tenant: its messages in flight, their holding time, and those set aside."""

    __slots__ = ("aside", "key", "listed", "out", "spent_ms")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.out = 0
        self.spent_ms = Fading()
        self.aside: deque[Place] = deque()
        self.listed = 0  # the in-flight count of its current heap entry

    def __lt__(self, other: Tenant) -> bool:
        return self.key < other.key


class Tenants:
    """The tenants of one queue: which are noisy, and which of those is next."""

    __slots__ = (
        "_idle",
        "_known",
        "_line",
        "_since_turn",
        "_waiting",
        "aside_count",
        "handled",
        "noisy_out_min",
        "spent_ms",
    )

    def __init__(self, *, noisy_out_min: int = NOISY_OUT_MIN) -> None:
        self.noisy_out_min = noisy_out_min
        self.aside_count = 0
        self.spent_ms = Fading()
        self.handled = Fading()
        self._known: dict[bytes, Tenant] = {}  # with messages in flight or set aside
        self._idle: OrderedDict[bytes, Tenant] = OrderedDict()
        self._waiting: dict[Tenant, None] = {}  # with messages set aside
        # A heap of those by messages in flight. An entry is current if it matches `listed`.
        self._line: list[tuple[int, Tenant]] = []
        self._since_turn = 0

    def __len__(self) -> int:
        return len(self._known) + len(self._idle)

    @property
    def are_waiting(self) -> bool:
        """Whether anything is set aside."""
        return bool(self._waiting)

    @property
    def has_room(self) -> bool:
        return self.aside_count < ASIDE_MAX

    @property
    def is_turn_due(self) -> bool:
        """Whether the next message must be one that was set aside, whatever else is available."""
        return self._since_turn >= TURN - 1

    def of(self, key: bytes) -> Tenant:
        tenant = self._known.get(key) or self._idle.get(key)
        return Tenant(key) if tenant is None else tenant

    def is_noisy(self, tenant: Tenant, out_total: int, now_ms: int) -> bool:
        """Whether other tenants go first, given the queue's number of messages in flight."""
        if tenant.aside:
            return True
        if tenant.out >= self.noisy_out_min and tenant.out > out_total * NOISY_SHARE:
            return True
        if self.handled.at(now_ms) < HANDLED_MIN:
            return False
        return tenant.spent_ms.at(now_ms) > self.spent_ms.at(now_ms) * NOISY_SHARE

    # In flight

    def hand_out(self, tenant: Tenant, *, is_in_turn: bool) -> None:
        """Count a delivered message; `is_in_turn` if it had been set aside."""
        self._since_turn = 0 if is_in_turn else self._since_turn + self.are_waiting
        tenant.out += 1
        self._know(tenant)

    def pass_by(self, count: int) -> None:
        """Count delivered messages that belong to no tenant."""
        self._since_turn += count * self.are_waiting

    def give_back(self, tenant: Tenant) -> None:
        """Count a message that is no longer in flight."""
        tenant.out -= 1
        if tenant.aside:
            self._list(tenant)
        elif not tenant.out:
            self._leave(tenant)

    def spend(self, tenants: Sequence[Tenant | None], held_ms: int, now_ms: int) -> None:
        """Charge tenants for handled messages, each of which was held for `held_ms`."""
        held_ms = max(1, held_ms)
        self.handled.add(len(tenants), now_ms)
        self.spent_ms.add(len(tenants) * held_ms, now_ms)
        for tenant in tenants:
            if tenant is not None:
                tenant.spent_ms.add(held_ms, now_ms)

    def _know(self, tenant: Tenant) -> None:
        if tenant.key not in self._known:
            self._idle.pop(tenant.key, None)
            self._known[tenant.key] = tenant

    def _leave(self, tenant: Tenant) -> None:
        if self._known.pop(tenant.key, None) is None:
            return
        self._idle[tenant.key] = tenant
        if len(self._idle) > IDLE_MAX:
            self._idle.popitem(last=False)

    # Messages set aside

    def set_aside(self, tenant: Tenant, place: Place) -> None:
        """Set a message aside until it is its tenant's turn."""
        self._know(tenant)
        if not tenant.aside:
            self._waiting[tenant] = None
            self._list(tenant)
        tenant.aside.append(place)
        self.aside_count += 1

    def next_aside(self, count_max: int, is_current: Callable[[Place], bool]) -> list[Place]:
        """Take messages set aside, from the tenant with the least in flight first.

        Messages that were settled or moved in the meantime, by `is_current`, are dropped.
        """
        chosen: list[Place] = []
        ahead: dict[Tenant, int] = {}  # what each tenant gets in flight by this call
        while len(chosen) < count_max and (tenant := self._first_waiting(ahead)) is not None:
            place = tenant.aside.popleft()
            self.aside_count -= 1
            if is_current(place):
                chosen.append(place)
                ahead[tenant] = ahead.get(tenant, 0) + 1
            if not tenant.aside:
                del self._waiting[tenant]
                if not tenant.out:
                    self._leave(tenant)
        for tenant in ahead:
            if tenant.aside:
                self._list(tenant)
        if not chosen:
            self._since_turn = 0
        return chosen

    def release(self) -> list[Place]:
        """Forget what was set aside; return it, for the caller to make it choosable."""
        places = [place for tenant in self._waiting for place in tenant.aside]
        for tenant in self._waiting:
            tenant.aside.clear()
            if not tenant.out:
                self._leave(tenant)
        self._waiting, self._line, self.aside_count = {}, [], 0
        return places

    def _list(self, tenant: Tenant) -> None:
        tenant.listed = tenant.out
        heapq.heappush(self._line, (tenant.out, tenant))
        if len(self._line) > 2 * len(self._waiting) + STALE_MAX:
            for one in self._waiting:
                one.listed = one.out
            self._line = [(one.out, one) for one in self._waiting]
            heapq.heapify(self._line)

    def _first_waiting(self, ahead: dict[Tenant, int]) -> Tenant | None:
        line = self._line
        while line:
            listed, tenant = line[0]
            if not tenant.aside or listed != tenant.listed:
                heapq.heappop(line)
                continue
            actual = tenant.out + ahead.get(tenant, 0)
            if actual <= listed:
                return tenant
            tenant.listed = actual
            heapq.heapreplace(line, (actual, tenant))
        return None
