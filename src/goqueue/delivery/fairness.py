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
from typing import NamedTuple

from goqueue.delivery.lanes import MIXED, Backlog, Chooser, Pick, Run

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

# How a receive scans behind a backlog for other tenants: the number of scans, the growth of each
# over the last, and the messages per scan. No message is scanned twice in this way.
SCANS_MAX = 4
SCAN_GROWTH = 8
SCAN_MESSAGES_MAX = 500

ASIDE_MS = -1  # due time that marks a message as set aside: it is not due by time

Message = tuple[int, int]  # partition and offset


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
        self.aside: deque[Message] = deque()
        self.listed = 0  # the in-flight count of its current heap entry

    def __lt__(self, other: Tenant) -> bool:
        return self.key < other.key


class Tenants:
    """The tenants of one queue: which are noisy, and which of those is next."""

    __slots__ = (
        "_by_out",
        "_since_turn",
        "_waiting",
        "aside_count",
        "handled",
        "idle",
        "known",
        "noisy_out_min",
        "spent_ms",
    )

    def __init__(self, *, noisy_out_min: int = NOISY_OUT_MIN) -> None:
        self.noisy_out_min = noisy_out_min
        self.aside_count = 0
        self.spent_ms = Fading()
        self.handled = Fading()
        self.known: dict[bytes, Tenant] = {}  # with messages in flight or set aside
        self.idle: OrderedDict[bytes, Tenant] = OrderedDict()  # whose holding times are kept
        self._waiting: dict[Tenant, None] = {}  # with messages set aside
        # A heap of those by messages in flight. An entry is current if it matches `listed`.
        self._by_out: list[tuple[int, Tenant]] = []
        self._since_turn = 0

    def __len__(self) -> int:
        return len(self.known) + len(self.idle)

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
        tenant = self.known.get(key) or self.idle.get(key)
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
        if tenant.key not in self.known:
            self.idle.pop(tenant.key, None)
            self.known[tenant.key] = tenant

    def _leave(self, tenant: Tenant) -> None:
        if self.known.pop(tenant.key, None) is None:
            return
        self.idle[tenant.key] = tenant
        if len(self.idle) > IDLE_MAX:
            self.idle.popitem(last=False)

    # Messages set aside

    def set_aside(self, tenant: Tenant, message: Message) -> None:
        """Set a message aside until it is its tenant's turn."""
        self._know(tenant)
        if not tenant.aside:
            self._waiting[tenant] = None
            self._list(tenant)
        tenant.aside.append(message)
        self.aside_count += 1

    def next_aside(self, count_max: int, is_current: Callable[[Message], bool]) -> list[Message]:
        """Take messages set aside, from the tenant with the least in flight first.

        Messages that were settled or moved in the meantime, by `is_current`, are dropped.
        """
        chosen: list[Message] = []
        ahead: dict[Tenant, int] = {}  # what each tenant gets in flight by this call
        while len(chosen) < count_max and (tenant := self._first_waiting(ahead)) is not None:
            message = tenant.aside.popleft()
            self.aside_count -= 1
            if is_current(message):
                chosen.append(message)
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

    def release(self) -> list[Message]:
        """Forget what was set aside; return it, for the caller to make it choosable."""
        messages = [message for tenant in self._waiting for message in tenant.aside]
        for tenant in self._waiting:
            tenant.aside.clear()
            if not tenant.out:
                self._leave(tenant)
        self._waiting, self._by_out, self.aside_count = {}, [], 0
        return messages

    def _list(self, tenant: Tenant) -> None:
        tenant.listed = tenant.out
        heapq.heappush(self._by_out, (tenant.out, tenant))
        if len(self._by_out) > 2 * len(self._waiting) + STALE_MAX:
            for one in self._waiting:
                one.listed = one.out
            self._by_out = [(one.out, one) for one in self._waiting]
            heapq.heapify(self._by_out)

    def _first_waiting(self, ahead: dict[Tenant, int]) -> Tenant | None:
        heap = self._by_out
        while heap:
            listed, tenant = heap[0]
            if not tenant.aside or listed != tenant.listed:
                heapq.heappop(heap)
                continue
            actual = tenant.out + ahead.get(tenant, 0)
            if actual <= listed:
                return tenant
            tenant.listed = actual
            heapq.heapreplace(heap, (actual, tenant))
        return None


class Sifted(NamedTuple):
    """What becomes of the messages of a run."""

    positions: Sequence[int]  # of the deliverable ones, in the run
    tenants: Sequence[Tenant | None]  # of the deliverable ones
    expired: Sequence[int] = ()  # offsets
    aside: Sequence[int] = ()  # offsets


class FairShares:
    """Sets messages of noisy tenants aside, and delivers them when it is their turn."""

    __slots__ = (
        "_chooser",
        "_is_turn",
        "_keep_max",
        "_partitions",
        "is_scanning",
        "scans",
        "tenants",
    )

    def __init__(self, partitions: Sequence[Backlog], chooser: Chooser) -> None:
        self.tenants = Tenants()
        self.scans = 0  # of the current receive
        self.is_scanning = False  # whether more may have been chosen than may be delivered
        self._partitions = partitions
        self._chooser = chooser
        self._keep_max = 0  # how many of the chosen messages may be delivered
        self._is_turn = False  # whether the chosen messages had been set aside

    def choose(self, now_ms: int, room: int, *, fresh_max: int) -> list[Pick]:
        """Choose messages, scanning for quiet tenants; once scans are used up, those set aside."""
        tenants = self.tenants
        self._keep_max, self._is_turn, self.is_scanning = room, False, False
        picks: list[Pick] = []
        if tenants.are_waiting and room > 0:
            if tenants.is_turn_due:
                picks = self._choose_aside(1)
            elif self.scans >= SCANS_MAX or not tenants.has_room:
                picks = self._choose_aside(room)
            else:
                count = max(room, min(room * SCAN_GROWTH**self.scans, SCAN_MESSAGES_MAX))
                picks = self._chooser.choose(now_ms, count, fresh_max=fresh_max)
                self.is_scanning = bool(picks)
                self.scans += 1
                picks = picks or self._choose_aside(room)
        if not picks:
            self.scans += 1
            picks = self._chooser.choose(now_ms, room, fresh_max=fresh_max)
        return picks

    def stop_scanning(self) -> bool:
        """Stop a scan whose records cannot be read; return whether messages set aside remain."""
        if not self.is_scanning:
            return False
        self.scans = SCANS_MAX
        return self.tenants.are_waiting

    def _choose_aside(self, count_max: int) -> list[Pick]:
        picks: list[Pick] = []
        offsets: list[int] = []
        for number, offset in self.tenants.next_aside(count_max, self._is_aside):
            self._partitions[number].take_waiting(offset)
            if not picks or picks[-1].partition != number:
                offsets = []
                picks.append(Pick(number, MIXED, offsets))
            offsets.append(offset)
        self._is_turn = bool(picks)
        return picks

    def _is_aside(self, message: Message) -> bool:
        number, offset = message
        return self._partitions[number].waiting.get(offset) == ASIDE_MS

    def sift(self, run: Run, now_ms: int, *, in_flight: int) -> Sifted:
        """Decide which messages are delivered; the others expire, are set aside, or are left."""
        keys, expires_ms, tenants = run.keys, run.expires_ms, self.tenants
        assert keys is not None, "fair shares need keys"
        count = len(run.offsets)
        if expires_ms is None and count <= self._keep_max and keys.count(None) == count:
            self._keep_max -= count
            tenants.pass_by(count)
            return Sifted(range(count), [None] * count)
        may_wait = not self._is_turn and self._is_contended(now_ms)
        positions: list[int] = []
        owners: list[Tenant | None] = []
        expired: list[int] = []
        aside: list[int] = []
        for position, offset in enumerate(run.offsets):
            ends_ms = None if expires_ms is None else expires_ms[position]
            if ends_ms is not None and ends_ms <= now_ms:
                expired.append(offset)
                continue
            key = keys[position]
            tenant = None if key is None else tenants.of(key)
            if may_wait and tenant is not None and self._must_wait(tenant, in_flight, now_ms):
                aside.append(offset)
                self._partitions[run.partition].wait(offset, ASIDE_MS)
                tenants.set_aside(tenant, (run.partition, offset))
            elif self._keep_max > 0:
                self._keep_max -= 1
                positions.append(position)
                owners.append(tenant)
                if tenant is None:
                    tenants.pass_by(1)
                else:
                    tenants.hand_out(tenant, is_in_turn=self._is_turn)
        return Sifted(positions, owners, expired, aside)

    def _is_contended(self, now_ms: int) -> bool:
        """Whether other messages compete for delivery; if not, all chosen ones may go."""
        if self.tenants.are_waiting or self.is_scanning or self._chooser.has_ready:
            return True
        due_ms = self._chooser.next_due_ms()
        return due_ms is not None and due_ms <= now_ms

    def _must_wait(self, tenant: Tenant, in_flight: int, now_ms: int) -> bool:
        return self.tenants.has_room and self.tenants.is_noisy(tenant, in_flight, now_ms)
