"""Choosing and filtering messages where keys name tenants with fair shares."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.delivery.choosing import MIXED, Pick
from goqueue.delivery.fairness import ASIDE_MS, Place, Tenant
from goqueue.delivery.leased_runs import Draft, Run
from goqueue.delivery.ledger import Finish
from goqueue.delivery.settling import QueueSettling

# How a receive scans behind a backlog for other tenants: the number of scans, the growth of each
# over the last, and the messages per scan. No message is scanned twice in this way.
LOOKS_MAX = 4
LOOK_GROWTH = 8
LOOK_MESSAGES_MAX = 500


class QueueFairness(QueueSettling):
    """Sets messages of noisy tenants aside, and delivers them when it is their turn."""

    _keep_max = 0  # how many of the chosen messages may be delivered
    _is_turn = False  # whether the chosen messages had been set aside
    _looks = 0  # scans of the current receive
    is_scanning = False  # whether more may have been chosen than may be delivered

    def _choose_fairly(self, now_ms: int, room: int, fresh_max: int) -> list[Pick]:
        """Choose messages, scanning for quiet tenants; once scans are used up, those set aside."""
        tenants = self.tenants
        self._keep_max, self._is_turn, self.is_scanning = room, False, False
        picks: list[Pick] = []
        if tenants.are_waiting and room > 0:
            if tenants.is_turn_due:
                picks = self._choose_aside(1)
            elif self._looks >= LOOKS_MAX or not tenants.has_room:
                picks = self._choose_aside(room)
            else:
                count = max(room, min(room * LOOK_GROWTH**self._looks, LOOK_MESSAGES_MAX))
                picks = self.chooser.choose(now_ms, count, fresh_max=fresh_max)
                self.is_scanning = bool(picks)
                self._looks += 1
                picks = picks or self._choose_aside(room)
        if not picks:
            self._looks += 1
            picks = self.chooser.choose(now_ms, room, fresh_max=fresh_max)
        return picks

    def stop_scanning(self) -> bool:
        """Stop a scan whose records cannot be read; return whether messages set aside remain."""
        if not self.is_scanning:
            return False
        self._looks = LOOKS_MAX
        return self.tenants.are_waiting

    def _choose_aside(self, count_max: int) -> list[Pick]:
        picks: list[Pick] = []
        offsets: list[int] = []
        for number, offset in self.tenants.next_aside(count_max, self._is_aside):
            self.partitions[number].take_waiting(offset)
            if not picks or picks[-1].partition != number:
                offsets = []
                picks.append(Pick(number, MIXED, offsets))
            offsets.append(offset)
        self._is_turn = bool(picks)
        return picks

    def _is_aside(self, place: Place) -> bool:
        number, offset = place
        return self.partitions[number].waiting.get(offset) == ASIDE_MS

    def _sift_fairly(self, run: Run, draft: Draft, now_ms: int) -> Sequence[int]:
        """Return the positions of deliverable messages; finish, set aside or leave the others."""
        keys, expires_ms = run.keys, run.expires_ms
        assert keys is not None, "fair shares need keys"
        count = len(run.offsets)
        if expires_ms is None and count <= self._keep_max and keys.count(None) == count:
            draft.tenants += [None] * count
            self._keep_max -= count
            self.tenants.pass_by(count)
            return range(count)
        may_wait = not self._is_turn and self._is_contended(now_ms)
        places: list[int] = []
        for place, offset in enumerate(run.offsets):
            ends_ms = None if expires_ms is None else expires_ms[place]
            if ends_ms is not None and ends_ms <= now_ms:
                draft.finish(offset, Finish.EXPIRED)
                continue
            key = keys[place]
            tenant = None if key is None else self.tenants.of(key)
            if may_wait and tenant is not None and self._is_to_wait(tenant, now_ms):
                draft.pass_over(offset)
                self._set_aside(tenant, run.partition, offset)
            elif self._keep_max > 0:
                self._keep_max -= 1
                places.append(place)
                draft.tenants.append(tenant)
                if tenant is None:
                    self.tenants.pass_by(1)
                else:
                    self.tenants.hand_out(tenant, is_in_turn=self._is_turn)
        return places

    def _is_contended(self, now_ms: int) -> bool:
        """Whether other messages compete for delivery; if not, all chosen ones may go."""
        if self.tenants.are_waiting or self.is_scanning or self.chooser.has_ready:
            return True
        due_ms = self.chooser.next_due_ms()
        return due_ms is not None and due_ms <= now_ms

    def _is_to_wait(self, tenant: Tenant, now_ms: int) -> bool:
        tenants = self.tenants
        return tenants.has_room and tenants.is_noisy(tenant, self.leases.count, now_ms)

    def _set_aside(self, tenant: Tenant, number: int, offset: int) -> None:
        self.partitions[number].wait(offset, ASIDE_MS)
        self.tenants.set_aside(tenant, (number, offset))
