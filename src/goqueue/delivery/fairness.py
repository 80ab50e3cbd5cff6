"""Fair shares: while one tenant keeps the consumers busy, messages of the others go first.

A tenant is whoever the keys of messages name; a message without a key stands for itself. One that
has much in flight, or has lately taken much of the consumers' time, is noisy. What is chosen of a
noisy tenant is set aside, in the order of the log, and the choice goes on behind it; so those who
wait behind a backlog are found. What was set aside is handed out when nobody else has anything, and
one message in a while even so. A tenant stays noisy until nothing of it is set aside any more.

All of it follows from what is in flight, so nothing is written down: after a restart everybody
begins quiet, and what was set aside is in the log as before.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

# A tenant is noisy with so many in flight, if that is more than this part of all that is.
NOISY_OUT_MIN = 30
NOISY_SHARE = 0.1
# It is so too with this part of the time for which messages were held lately, once a queue has
# handled so many. Times fade by half from period to period.
HANDLED_MIN = 30
PERIOD_MS = 15_000
# Messages set aside in one queue, at some 250 bytes each; whoever is noisy beyond that is served.
ASIDE_MAX = 50_000
# Tenants with nothing in flight whose times are remembered.
IDLE_MAX = 10_000
# While others go first, one message of so many is one that was set aside: nobody starves.
TURN = 16

STALE_MAX = 64  # entries of a line that do not count, besides one for each who waits

ASIDE_MS = -1  # when a message that was set aside is due: not by its time

Place = tuple[int, int]  # partition and offset


class Fading:
    """A sum of which half is gone after each period."""

    __slots__ = ("_amount", "_period")

    def __init__(self) -> None:
        self._amount = 0
        self._period = 0

    def add(self, amount: int, now_ms: int) -> None:
        self._amount = self.at(now_ms) + amount
        self._period = now_ms // PERIOD_MS

    def at(self, now_ms: int) -> int:
        # A shift by more than a number has bits is as good as any larger one.
        return self._amount >> min(63, max(0, now_ms // PERIOD_MS - self._period))


class Tenant:
    """What is in flight of one tenant, how long it was held, and what is set aside."""

    __slots__ = ("aside", "key", "listed", "out", "spent_ms")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.out = 0
        self.spent_ms = Fading()
        self.aside: deque[Place] = deque()
        self.listed = 0  # under which number in flight it stands among those who wait

    def __lt__(self, other: Tenant) -> bool:
        return self.key < other.key


class Tenants:
    """The tenants of one queue: who is noisy, and whose turn it is among those who are."""

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
        self._known: dict[bytes, Tenant] = {}  # those with something in flight or aside
        self._idle: OrderedDict[bytes, Tenant] = OrderedDict()
        self._waiting: dict[Tenant, None] = {}  # those with something aside
        # The same by what they have in flight. An entry counts if its tenant says the same.
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
        """Whether those who wait are to have the next message, whoever else has one."""
        return self._since_turn >= TURN - 1

    def of(self, key: bytes) -> Tenant:
        tenant = self._known.get(key) or self._idle.get(key)
        return Tenant(key) if tenant is None else tenant

    def is_noisy(self, tenant: Tenant, out_total: int, now_ms: int) -> bool:
        """Whether others go first, with so many messages of the queue in flight."""
        if tenant.aside:
            return True
        if tenant.out >= self.noisy_out_min and tenant.out > out_total * NOISY_SHARE:
            return True
        if self.handled.at(now_ms) < HANDLED_MIN:
            return False
        return tenant.spent_ms.at(now_ms) > self.spent_ms.at(now_ms) * NOISY_SHARE

    # In flight

    def hand_out(self, tenant: Tenant, *, is_in_turn: bool) -> None:
        """A message is handed out; `is_in_turn` where it had been set aside."""
        self._since_turn = 0 if is_in_turn else self._since_turn + self.are_waiting
        tenant.out += 1
        self._know(tenant)

    def pass_by(self, count: int) -> None:
        """Messages of nobody in particular are handed out."""
        self._since_turn += count * self.are_waiting

    def give_back(self, tenant: Tenant) -> None:
        """A message is in flight no longer."""
        tenant.out -= 1
        if tenant.aside:
            self._list(tenant)
        elif not tenant.out:
            self._leave(tenant)

    def spend(self, tenants: Sequence[Tenant | None], held_ms: int, now_ms: int) -> None:
        """Messages of these were handled, each of which was held for so long."""
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

    # Set aside

    def set_aside(self, tenant: Tenant, place: Place) -> None:
        """Let a message wait until the tenant has its turn."""
        self._know(tenant)
        if not tenant.aside:
            self._waiting[tenant] = None
            self._list(tenant)
        tenant.aside.append(place)
        self.aside_count += 1

    def next_aside(self, count_max: int, is_current: Callable[[Place], bool]) -> list[Place]:
        """Whose turn it is: messages of those who wait, the one with the least in flight first.

        What has been settled or moved meanwhile is forgotten; `is_current` tells.
        """
        chosen: list[Place] = []
        ahead: dict[Tenant, int] = {}  # what each would have in flight more
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
        """Forget who waits; what was set aside, for whoever hands it out."""
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
