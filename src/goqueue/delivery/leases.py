"""Leases: which messages are in flight, with which consumer, until when, and their receipts.

There is one lease per receive call and partition, whatever its number of messages, with one entry
in the expiry heap. A message that is extended individually gets its own expiry time inside its
lease, so that its receipt stays valid.

A receipt proves which message a consumer was given, in which delivery, and is opaque to its holder.
Its head names the queue, the partition and the lease, and the first offset and message count of the
lease; its tail identifies the message in it. So a receipt identifies its message by itself, even
when its lease has ended or another node owns the queue.
"""

from __future__ import annotations

import heapq
from array import array
from binascii import Error as BinasciiError
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from goqueue.delivery.fairness import Tenant
from goqueue.delivery.grants import Grant, Granted, LeaseEvent, lease_events
from goqueue.delivery.settings import RECEIVE_MESSAGES_MAX, QueueSettings
from goqueue.model.errors import InvalidReceipt

SECRET_BYTES = 16
SERIAL_MAX = (1 << 48) - 1

_RUN, _SCATTERED = 3, 4  # the version, which also determines the form of the tails
# The bytes of a head and of a scattered tail without their codes.
_HEAD_SAYS, _TAIL_SAYS = 22, 12
# All are multiples of three bytes, so that their base64 texts can be joined without padding.
_HEAD_BYTES = _HEAD_SAYS + 8
_RUN_TAIL_BYTES = 3
_SCATTERED_TAIL_BYTES = _TAIL_SAYS + 9
HEAD_LENGTH = _HEAD_BYTES * 4 // 3
_LENGTHS = {
    HEAD_LENGTH + _RUN_TAIL_BYTES * 4 // 3: _RUN,
    HEAD_LENGTH + _SCATTERED_TAIL_BYTES * 4 // 3: _SCATTERED,
}
_POSITION_LENGTH = 4  # every tail starts with the position in the lease
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")  # characters that are never written are refused


class Delivery(NamedTuple):
    """A message delivered to a consumer."""

    partition: int
    offset: int
    lane: int
    attempt: int
    receipt: str
    until_ms: int
    first_ms: int  # when the message was first delivered, as far as recorded


class Lease:
    """Messages of one partition that one receive call was given, in delivery order."""

    __slots__ = (
        "attempts",
        "consumer",
        "firsts_ms",
        "granted_ms",
        "head",
        "id",
        "lanes",
        "offsets",
        "out",
        "out_count",
        "partition",
        "session_id",
        "tails",
        "tenants",
        "until_ms",
        "untils",
        "wake_ms",
    )

    def __init__(
        self,
        granted: Granted,
        partition: int,
        lanes: bytes,
        *,
        head: str,
        tails: Sequence[str],
        firsts_ms: Sequence[int] | None = None,
    ) -> None:
        """`head` and `tails` form the receipts.

        `firsts_ms` are the times of first delivery, if any message was delivered before.
        """
        self.id = granted.serial  # unique among the queue's leases on all nodes
        self.consumer = granted.consumer
        self.partition = partition
        self.offsets = granted.offsets
        self.attempts = granted.attempts
        self.lanes = lanes
        self.firsts_ms = firsts_ms
        self.head = head
        self.tails = tails
        self.session_id = 0  # of a member of a share group; it is not stored
        self.granted_ms = granted.granted_ms
        self.until_ms = granted.until_ms
        self.untils: array[int] | None = None  # expiry per message, if they differ
        self.wake_ms = granted.until_ms  # when the expiry heap examines this lease
        self.out_count = count = len(granted.offsets)
        self.out = bytearray(b"\x01") * count  # 1 while the message is with the consumer
        self.tenants: list[Tenant | None] | None = None  # with fair shares between tenants

    def delivery(self, index: int) -> Delivery:
        """Return one of its messages as the consumer sees it."""
        return Delivery(
            self.partition,
            self.offsets[index],
            self.lanes[index],
            self.attempts[index],
            self.head + self.tails[index],
            self.until_of(index),
            self.first_of(index),
        )

    def tails_at(self, positions: slice) -> list[bytes]:
        """Return the suffixes of these receipts as bytes; nearly all leases share one table."""
        if len(self.tails[0]) == len(TAIL_BYTES[0]):
            return TAIL_BYTES[positions]
        return [tail.encode() for tail in self.tails[positions]]

    def first_of(self, index: int) -> int:
        return self.granted_ms if self.firsts_ms is None else self.firsts_ms[index]

    def until_of(self, index: int) -> int:
        return self.until_ms if self.untils is None else self.untils[index]

    def events(self, keys: Sequence[int] | None) -> list[LeaseEvent]:
        """Return the events that describe its state; `keys` are those of its messages, if any."""
        granted = Granted(
            self.id,
            self.consumer,
            self.granted_ms,
            self.until_ms,
            self.offsets,
            self.attempts,
            keys,
        )
        return lease_events(granted, self.granted_ms, self.out, self.until_ms, self.untils)

    def outstanding(self) -> Iterator[int]:
        """Yield the indexes of the messages that are still in flight."""
        at = self.out.find(1)
        while at >= 0:
            yield at
            at = self.out.find(1, at + 1)


@dataclass(slots=True)
class Unacked:
    """The number of messages in flight, total and per consumer; shared by a group's queues."""

    total: int = 0
    by_consumer: dict[str, int] = field(default_factory=dict)

    def add(self, consumer: str, count: int) -> None:
        self.total += count
        left = self.by_consumer.get(consumer, 0) + count
        if left:
            self.by_consumer[consumer] = left
        else:
            self.by_consumer.pop(consumer, None)

    def of(self, consumer: str) -> int:
        return self.by_consumer.get(consumer, 0)


class Limits:
    """The limits of a queue, and what counts against them."""

    __slots__ = ("pending_letters", "retrying", "settings", "unacked")

    def __init__(self, settings: QueueSettings, unacked: Unacked) -> None:
        self.settings = settings
        self.unacked = unacked
        self.retrying = 0  # waiting messages that were delivered before
        self.pending_letters = 0  # messages on their way to the dead-letter topic

    def room_for(self, consumer: str) -> int:
        """How many more messages the consumer may hold."""
        settings, unacked = self.settings, self.unacked
        group_room = settings.unacked_max - unacked.total - self.pending_letters
        return max(0, min(group_room, settings.consumer_unacked_max - unacked.of(consumer)))


class Leases:
    """The live leases of one queue."""

    __slots__ = (
        "_by_head",
        "_by_holder",
        "_expiries",
        "_last_id",
        "_live",
        "_unacked",
        "count",
        "receipts",
    )

    def __init__(self, receipts: Receipts, unacked: Unacked) -> None:
        self.count = 0  # messages in flight
        self.receipts = receipts
        self._unacked = unacked
        self._live: dict[int, Lease] = {}
        self._by_head: dict[str, Lease] = {}
        # By consumer and partition, and then by number.
        self._by_holder: dict[tuple[str, int], dict[int, Lease]] = {}
        self._expiries: list[tuple[int, int]] = []
        self._last_id = 0

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._live.values()))

    def grant(
        self,
        consumer: str,
        partition: int,
        offsets: Sequence[int],
        attempts: Sequence[int],
        lanes: bytes,
        *,
        now_ms: int,
        until_ms: int,
        firsts_ms: Sequence[int] | None = None,
        keys: Sequence[int] | None = None,
        has_receipts: bool = True,
    ) -> tuple[Lease, Granted]:
        """Lease messages to a consumer; return the lease, and its event for the journal.

        Without receipts, the consumer names messages by their offsets.
        """
        # Serials continue from the clock, so that one lost in a power failure is not reused.
        serial = self._last_id = min(max(self._last_id + 1, now_ms), SERIAL_MAX)
        offsets = _as_run(offsets)
        if not isinstance(offsets, range):
            offsets = array("q", offsets)
        if not isinstance(attempts, bytes):
            attempts = array("H", attempts)
        head, tails = _no_receipts(serial)
        if has_receipts:
            head, tails = self._receipts(partition, serial, offsets, attempts)
        granted = Granted(serial, consumer, now_ms, until_ms, offsets, attempts, keys)
        lease = Lease(granted, partition, lanes, head=head, tails=tails, firsts_ms=firsts_ms)
        self._hold(lease)
        return lease, granted

    def resume(
        self, grant: Grant, partition: int, lanes: bytes, firsts_ms: Sequence[int] | None
    ) -> None:
        """Restore a lease that a previous owner of the queue granted."""
        event = grant.event
        self.skip_serials_to(event.serial)
        head, tails = self._receipts(partition, event.serial, event.offsets, event.attempts)
        lease = Lease(event, partition, lanes, head=head, tails=tails, firsts_ms=firsts_ms)
        lease.granted_ms, lease.until_ms, lease.untils = (
            grant.granted_ms,
            grant.until_ms,
            grant.untils,
        )
        lease.out, lease.out_count = grant.out, grant.out.count(1)
        lease.wake_ms = grant.until_ms
        if grant.untils is not None:
            lease.wake_ms = min(grant.untils[one] for one in lease.outstanding())
        self._hold(lease)

    def _receipts(
        self, partition: int, serial: int, offsets: Sequence[int], attempts: Sequence[int]
    ) -> tuple[str, Sequence[str]]:
        """Return the head and the tails of a lease's receipts, unless it is too large for any."""
        if len(offsets) > RECEIVE_MESSAGES_MAX:
            return _no_receipts(serial)
        return self.receipts.write(partition, serial, offsets, attempts)

    def skip_serials_to(self, serial: int) -> None:
        """Never assign this serial or a lower one again."""
        self._last_id = max(self._last_id, serial)

    def held(self, consumer: str, partition: int) -> list[Lease]:
        """Return the live leases of a consumer in a partition, newest last."""
        return list(self._by_holder.get((consumer, partition), {}).values())

    def _hold(self, lease: Lease) -> None:
        self._list(lease)
        heapq.heappush(self._expiries, (lease.wake_ms, lease.id))
        self.count += lease.out_count
        self._unacked.add(lease.consumer, lease.out_count)

    def _list(self, lease: Lease) -> None:
        self._live[lease.id] = lease
        self._by_head[lease.head] = lease
        self._by_holder.setdefault((lease.consumer, lease.partition), {})[lease.id] = lease

    def _unlist(self, lease: Lease) -> None:
        del self._live[lease.id]
        del self._by_head[lease.head]
        holder = (lease.consumer, lease.partition)
        held = self._by_holder[holder]
        del held[lease.id]
        if not held:
            del self._by_holder[holder]

    def find(self, receipt: str, now_ms: int) -> tuple[Lease, int] | None:
        """Return the lease of a receipt and the index in it, if the receipt is still valid."""
        lease = self._by_head.get(receipt[:HEAD_LENGTH])
        if lease is None:
            return None
        tail = receipt[HEAD_LENGTH:]
        index = position_in(tail)
        if not 0 <= index < len(lease.out) or not lease.out[index] or lease.tails[index] != tail:
            return None
        until_ms = lease.until_ms if lease.untils is None else lease.untils[index]
        return None if until_ms <= now_ms else (lease, index)

    def take_back(
        self, receipts: Sequence[str], now_ms: int
    ) -> tuple[dict[Lease, Sequence[int]], list[int]]:
        """Mark the messages of these receipts as no longer in flight; `settle` must follow.

        Return their indexes by lease, and the positions of the receipts that are not valid.
        """
        taken: dict[Lease, Sequence[int]] = {}
        refused: list[int] = []
        at, end = 0, len(receipts)
        while at < end:
            found = self.find(receipts[at], now_ms)
            if found is None:
                refused.append(at)
                at += 1
                continue
            lease, index = found
            count = _run_length(lease, index, receipts, at)
            at += count
            lease.out[index : index + count] = bytes(count)
            of_lease, of_run = taken.get(lease), range(index, index + count)
            if of_lease is None:
                taken[lease] = of_run
            elif isinstance(of_lease, list):
                of_lease += of_run
            else:
                taken[lease] = [*of_lease, *of_run]
        return taken, refused

    def give_back(self, lease: Lease, index: int) -> None:
        """Mark one message as no longer in flight, and settle it."""
        lease.out[index] = 0
        self.settle(lease, 1)

    def settle(self, lease: Lease, count: int) -> None:
        """Account for `count` messages of the lease that were marked as no longer in flight."""
        lease.out_count -= count
        self.count -= count
        self._unacked.add(lease.consumer, -count)
        if not lease.out_count:
            self._unlist(lease)

    def extend(self, lease: Lease, indexes: Iterable[int], until_ms: int) -> None:
        """Set the expiry of these messages, to an earlier or a later time."""
        chosen = set(indexes)
        if len(chosen) == lease.out_count:
            lease.until_ms, lease.untils = until_ms, None
        else:
            if lease.untils is None:
                lease.untils = array("q", (lease.until_ms,)) * len(lease.offsets)
            for index in chosen:
                lease.untils[index] = until_ms
        # An early heap entry finds nothing and is pushed again; only an earlier one must be added.
        if until_ms < lease.wake_ms:
            self._wake_at(lease, until_ms)

    def revive(self, lease: Lease, index: int, until_ms: int) -> None:
        """Put a returned message back in flight with the consumer, under its former receipt."""
        if lease.untils is None:
            lease.untils = array("q", (lease.until_ms,)) * len(lease.offsets)
        lease.untils[index] = until_ms
        lease.out[index] = 1
        lease.out_count += 1
        self.count += 1
        self._unacked.add(lease.consumer, 1)
        if lease.out_count == 1 or until_ms < lease.wake_ms:
            self._list(lease)
            self._wake_at(lease, until_ms)

    def next_expiry_ms(self) -> int | None:
        """A lower bound of the next expiry time."""
        expiries = self._expiries
        while expiries:
            wake_ms, lease_id = expiries[0]
            lease = self._live.get(lease_id)
            if lease is not None and lease.wake_ms == wake_ms:
                return wake_ms
            heapq.heappop(expiries)
        return None

    def expired(self, now_ms: int) -> list[tuple[Lease, list[int]]]:
        """Return the expired messages by lease. The caller must give them back."""
        expiries = self._expiries
        overdue: list[tuple[Lease, list[int]]] = []
        early: list[tuple[Lease, int]] = []
        while expiries and expiries[0][0] <= now_ms:
            wake_ms, lease_id = heapq.heappop(expiries)
            lease = self._live.get(lease_id)
            if lease is None or lease.wake_ms != wake_ms:
                continue
            due = [one for one in lease.outstanding() if lease.until_of(one) <= now_ms]
            if due:
                overdue.append((lease, due))
            if len(due) < lease.out_count:
                untils = [lease.until_of(one) for one in lease.outstanding()]
                early.append((lease, min(until for until in untils if until > now_ms)))
        for lease, until_ms in early:
            self._wake_at(lease, until_ms)
        return overdue

    def _wake_at(self, lease: Lease, wake_ms: int) -> None:
        lease.wake_ms = wake_ms
        heapq.heappush(self._expiries, (wake_ms, lease.id))


def _no_receipts(serial: int) -> tuple[str, Sequence[str]]:
    """Return a head that no receipt has, for a lease whose holder names messages by offset."""
    return f"#{serial}", ()


def _run_length(lease: Lease, index: int, receipts: Sequence[str], at: int) -> int:
    """Count the receipts from `at` on that match the lease from `index` on and are valid.

    Consumers mostly settle messages in the order received, and comparing is cheaper than lookup.
    """
    count_max = min(len(lease.out) - index, len(receipts) - at)
    head, tails = lease.head, lease.tails
    if count_max == 1 or receipts[at + 1] != head + tails[index + 1] or lease.untils is not None:
        return 1
    first_back = lease.out.find(0, index, index + count_max)
    if first_back >= 0:
        count_max = first_back - index
    # Compare all at once: receipts contain no spaces, so the joined texts are equal only if
    # all their parts are.
    tails = tails[index : index + count_max]
    if " ".join(receipts[at : at + count_max]) == head + f" {head}".join(tails):
        return count_max
    for count in range(2, count_max):
        if receipts[at + count] != head + tails[count]:
            return count
    return count_max


def _as_run(offsets: Sequence[int]) -> Sequence[int]:
    """Return the offsets as a range if they are contiguous."""
    first, last = offsets[0], offsets[-1]
    if isinstance(offsets, range) or last - first != len(offsets) - 1:
        return offsets
    run = range(first, last + 1)
    return run if all(map(int.__eq__, offsets, run)) else offsets


class Receipt(NamedTuple):
    """The contents of a receipt, not authenticated; `Receipts.read` checks that."""

    queue: int
    partition: int
    offset: int
    attempt: int
    serial: int


def queue_tag(topic_id: bytes) -> int:
    """Return a number that distinguishes the queues of a group, the same on every node."""
    return int.from_bytes(blake2b(topic_id, digest_size=3).digest(), "big")


class Receipts:
    """Creates and authenticates the receipts of one queue.

    A message authentication code, keyed with a secret of the queue that is stored in the delivery
    journal, prevents forgery. A lease of contiguous offsets that are all delivered for the first
    time has one code, in its head. In any other lease every tail names its offset and has its own
    code, because nothing else defines which offsets belong to the lease.

    Creating and checking receipts costs time per message, so a lease encodes its head once, tails
    come from a table, and a receipt of a live lease is never decoded: its head is looked up as it
    is.
    """

    __slots__ = ("_queue", "secret")

    def __init__(self, queue: int, secret: bytes = b"") -> None:
        self._queue = queue.to_bytes(3, "big")
        self.secret = secret

    def write(
        self, partition: int, serial: int, offsets: Sequence[int], attempts: Sequence[int]
    ) -> tuple[str, Sequence[str]]:
        """Return the head and the tails of a lease's receipts."""
        count = len(offsets)
        is_run = isinstance(offsets, range) and attempts.count(1) == count
        base = offsets[0] if is_run else min(offsets)
        head = b"%c%b%b%b%b%b" % (
            _RUN if is_run else _SCATTERED,
            partition.to_bytes(3, "big"),
            self._queue,
            base.to_bytes(7, "big"),
            count.to_bytes(2, "big"),
            serial.to_bytes(6, "big"),
        )
        text = _text(head + self._code(head, 8))
        if is_run:
            return text, TAILS[:count]
        return text, [
            self._scattered(head, position, offset - base, attempt)
            for position, (offset, attempt) in enumerate(zip(offsets, attempts, strict=True))
        ]

    def _scattered(self, head: bytes, position: int, distance: int, attempt: int) -> str:
        tail = b"\x00%b%b%b" % (
            position.to_bytes(2, "big"),
            distance.to_bytes(7, "big"),
            attempt.to_bytes(2, "big"),
        )
        return _text(tail + self._code(head + tail, 9))

    def read(self, text: str) -> Receipt:
        """Return the contents of a receipt of this queue; raise `InvalidReceipt` for others."""
        packed = _unpack(text)
        head, tail = packed[:_HEAD_SAYS], packed[_HEAD_BYTES:]
        is_genuine = compare_digest(self._code(head, 8), packed[_HEAD_SAYS:_HEAD_BYTES])
        if head[0] == _SCATTERED:
            code = self._code(head + tail[:_TAIL_SAYS], 9)
            is_genuine &= compare_digest(code, tail[_TAIL_SAYS:])
        receipt, count = _parse(packed)
        position = int.from_bytes(tail[:3], "big")
        if not is_genuine or position >= count or head[4:7] != self._queue:
            raise InvalidReceipt("this queue has not issued it")
        return receipt

    def _code(self, data: bytes, size: int) -> bytes:
        return blake2b(data, key=self.secret, digest_size=size).digest()


def check_receipt(text: str) -> Receipt:
    """Return the contents of a well-formed receipt, without authenticating it."""
    return _parse(_unpack(text))[0]


def position_in(tail: str) -> int:
    """Return the position in the lease that a tail names; -1 if it is not a tail."""
    return POSITIONS.get(tail[:_POSITION_LENGTH], -1)


def _unpack(text: str) -> bytes:
    form = _LENGTHS.get(len(text))
    if form is None:
        raise InvalidReceipt("it has the wrong length")
    try:
        packed = a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except (BinasciiError, UnicodeEncodeError):
        raise InvalidReceipt("it contains characters that receipts do not have") from None
    if packed[0] != form:
        raise InvalidReceipt("its format is not known here")
    return packed


def _parse(packed: bytes) -> tuple[Receipt, int]:
    """Return the contents, and the number of messages of the lease."""
    partition = int.from_bytes(packed[1:4], "big")
    queue = int.from_bytes(packed[4:7], "big")
    base = int.from_bytes(packed[7:14], "big")
    count = int.from_bytes(packed[14:16], "big")
    serial = int.from_bytes(packed[16:22], "big")
    tail = packed[_HEAD_BYTES:]
    if packed[0] == _RUN:
        offset, attempt = base + int.from_bytes(tail, "big"), 1
    else:
        offset = base + int.from_bytes(tail[3:10], "big")
        attempt = int.from_bytes(tail[10:12], "big")
    return Receipt(queue, partition, offset, attempt, serial), count


def _text(packed: bytes) -> str:
    return b2a_base64(packed, newline=False).translate(_TO_URL).decode()


# Tails by position and positions by tail; a lease holds at most what one call may receive.
TAILS = tuple(_text(position.to_bytes(3, "big")) for position in range(RECEIVE_MESSAGES_MAX))
TAIL_BYTES = [tail.encode() for tail in TAILS]
POSITIONS = {tail: position for position, tail in enumerate(TAILS)}
