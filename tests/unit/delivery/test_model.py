"""A queue against a simple model, under everything that can happen to it."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from goqueue.delivery import (
    Delivery,
    Ended,
    LaneSettings,
    Ledger,
    Prepared,
    QueueSettings,
    decode_events,
    peek,
    stats,
)
from goqueue.delivery.fairness import ASIDE_MS
from tests.unit.delivery.desk import Desk, Topic, errors

PARTITIONS = 2
DELIVERIES_MAX = 3
KEYS = (None, b"a", b"b", b"c")
Place = tuple[int, int]


class QueueMachine(RuleBasedStateMachine):
    """The model: what is done and how, what is out until when, and how often it was delivered."""

    key_order = False
    key_batches = False
    fair_keys = False
    late_acks = False

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.topic = Topic(PARTITIONS)
        self.desk = Desk(
            self.topic,
            QueueSettings(
                deliveries_max=DELIVERIES_MAX,
                visibility_ms=1000,
                backoff_ms=100,
                key_order=self.key_order,
                key_batches=self.key_batches,
                fair_keys=self.fair_keys,
                late_acks=self.late_acks,
                parked_max=3,
                unacked_max=12,
            ),
            LaneSettings(starvation_ms=500),
            seed=seed,
        )
        self.done: dict[Place, str] = {}
        self.out: dict[Place, tuple[Delivery, int]] = {}
        self.prepared: dict[Place, int] = {}
        self.tries: dict[Place, int] = {}
        self.late: dict[Place, Delivery] = {}  # what came back, by its last delivery
        self.calls: dict[Place, int] = {}  # with which receive a message went out last
        self.call = 0

    @property
    def now_ms(self) -> int:
        return self.topic.now_ms

    def places(self) -> list[Place]:
        return [
            (partition, offset)
            for partition in range(len(self.topic.keys))
            for offset in range(self.topic.starts[partition], self.topic.end(partition))
        ]

    def pick(self, share: int) -> list[Delivery]:
        """Some of the messages that are out."""
        held = [delivery for delivery, until in self.out.values() if until > self.now_ms]
        return held[:: share + 1]

    def expire_model(self) -> None:
        for place, (delivery, until) in list(self.out.items()):
            if until <= self.now_ms:
                del self.out[place]
                self.late[place] = delivery

    # What happens

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        count=st.integers(1, 4),
        lane=st.integers(0, 4),
        key=st.sampled_from(KEYS),
    )
    def produce(self, partition: int, count: int, lane: int, key: bytes | None) -> None:
        self.topic.produce(count, partition=partition, lane=lane, key=key)

    @rule(count=st.integers(1, 6), consumer=st.sampled_from(["anna", "bert"]))
    def receive(self, count: int, consumer: str) -> None:
        self.desk.queue.expire(self.now_ms)
        self.desk.save()
        self.expire_model()
        self.call += 1
        for one in self.desk.receive(count, consumer=consumer):
            place = (one.partition, one.offset)
            assert place not in self.done, "a finished message was delivered"
            assert place not in self.out, "a message is with two consumers"
            assert place not in self.prepared, "a message that a transaction has was delivered"
            self.tries[place] = self.tries.get(place, 0) + 1
            self.out[place] = (one, self.now_ms + 1000)
            self.calls[place] = self.call
            self.late.pop(place, None)
            if self.key_order:
                self.check_key(place)
        assert len(self.out) + len(self.prepared) <= 12

    def check_key(self, place: Place) -> None:
        partition, offset = place
        key = self.topic.keys[partition][offset]
        for other in (*self.out, *self.prepared):
            if other != place and other[0] == partition and key is not None:
                assert self.topic.keys[partition][other[1]] != key, "two of one key are out"

    @rule(share=st.integers(0, 2))
    def ack(self, share: int) -> None:
        chosen = self.pick(share)
        assert errors(self.desk.ack(chosen)) == [None] * len(chosen)
        for one in chosen:
            self.finish((one.partition, one.offset), "acked")
        assert errors(self.desk.ack(chosen)) == [None] * len(chosen), "an ack is made again"

    @precondition(lambda self: self.late_acks)
    @rule(share=st.integers(0, 2))
    def ack_late(self, share: int) -> None:
        """What has come back, and was not handed out since, can be acked late.

        Where keys have an order only if nothing of its key comes before it.
        """
        self.desk.queue.expire(self.now_ms)
        self.expire_model()
        self.discard()
        for place, delivery in list(self.late.items())[:: share + 1]:
            partition = self.desk.queue.partitions[delivery.partition]
            how = self.done.get(place)
            is_open = not self.key_order or delivery.offset in partition.waiting
            is_refused = how == "dead" if how is not None else not is_open
            expected = "stale_receipt" if is_refused else None
            assert errors(self.desk.ack([delivery])) == [expected]
            del self.late[place]
            if expected is None and how is None:
                self.finish(place, "acked")

    @precondition(lambda self: self.late_acks and not self.key_order)
    @rule(share=st.integers(0, 2), visibility_ms=st.sampled_from([1, 300, 2000]))
    def extend_late(self, share: int, visibility_ms: int) -> None:
        """What waits to be handed out again can be had again by its last receipt."""
        self.desk.queue.expire(self.now_ms)
        self.expire_model()
        self.discard()
        queue = self.desk.queue
        for place, delivery in list(self.late.items())[:: share + 1]:
            is_waiting = delivery.offset in queue.partitions[delivery.partition].waiting
            has_room = queue.limits.room_for("anna") > 0
            expected = None if is_waiting and place not in self.done else "stale_receipt"
            if not has_room:
                expected = "stale_receipt"
            assert errors(self.desk.extend([delivery], visibility_ms)) == [expected]
            if expected is None:
                del self.late[place]
                self.out[place] = (delivery, self.now_ms + visibility_ms)

    @rule(share=st.integers(0, 3), delay_ms=st.sampled_from([None, 0, 50, 700]))
    def nack(self, share: int, delay_ms: int | None) -> None:
        chosen = self.pick(share)
        assert errors(self.desk.nack(chosen, delay_ms)) == [None] * len(chosen)
        for one in chosen:
            del self.out[one.partition, one.offset]
            self.late[one.partition, one.offset] = one
        self.discard()

    @rule(share=st.integers(1, 4))
    def reject(self, share: int) -> None:
        chosen = self.pick(share)
        assert errors(self.desk.reject(chosen)) == [None] * len(chosen)
        for one in chosen:
            del self.out[one.partition, one.offset]
        self.discard()

    @rule(share=st.integers(0, 3), visibility_ms=st.sampled_from([1, 300, 2000]))
    def extend(self, share: int, visibility_ms: int) -> None:
        chosen = self.pick(share)
        assert errors(self.desk.extend(chosen, visibility_ms)) == [None] * len(chosen)
        for one in chosen:
            self.out[one.partition, one.offset] = (one, self.now_ms + visibility_ms)

    @rule(share=st.integers(0, 2), producer_id=st.integers(1, 2))
    def prepare(self, share: int, producer_id: int) -> None:
        chosen = self.pick(share)
        assert errors(self.desk.prepare(chosen, producer_id)) == [None] * len(chosen)
        for one in chosen:
            del self.out[one.partition, one.offset]
            self.prepared[one.partition, one.offset] = producer_id
        assert errors(self.desk.ack(chosen)) == ["stale_receipt"] * len(chosen)

    @rule(producer_id=st.integers(1, 2), is_commit=st.booleans())
    def end(self, producer_id: int, is_commit: bool) -> None:
        self.desk.end(producer_id, is_commit=is_commit)
        for place in [one for one, owner in self.prepared.items() if owner == producer_id]:
            del self.prepared[place]
            if is_commit:
                self.finish(place, "acked")
        self.discard()

    @rule(ms=st.sampled_from([1, 100, 400, 1000, 2500]))
    def pass_time(self, ms: int) -> None:
        self.desk.pass_time(ms)
        self.expire_model()
        self.discard()

    @rule(partition=st.integers(0, PARTITIONS - 1), data=st.data())
    def rewind(self, partition: int, data: st.DataObject) -> None:
        start, end = self.topic.starts[partition], self.topic.end(partition)
        offset = data.draw(st.integers(start, end))
        untouched = {
            place
            for place in self.places()
            if place[0] == partition
            and place[1] < offset
            and peek(self.desk.queue, partition, range(place[1], place[1] + 1))[0].state == "ready"
            and place[1] not in self.desk.queue.partitions[partition].waiting
        }
        self.desk.queue.rewind(partition, offset, self.now_ms)
        self.desk.save()
        for place in untouched:
            self.done[place] = "skipped"
        self.late.clear()  # Receipts of before the move are void.
        for kept in (self.done, self.out, self.prepared, self.tries):
            for place in [one for one in kept if one[0] == partition and one[1] >= offset]:
                kept.pop(place)  # type: ignore[attr-defined]

    @rule(partition=st.integers(0, PARTITIONS - 1), step=st.integers(0, 3))
    def lose_the_oldest(self, partition: int, step: int) -> None:
        start = min(self.topic.starts[partition] + step, self.topic.end(partition))
        self.topic.starts[partition] = start
        self.desk.queue.partitions[partition].start_moved(start, self.now_ms)
        self.topic.indexes[partition].forget_before(start)
        for place in [one for one in self.out if one[0] == partition and one[1] < start]:
            # Its consumer may settle it, which changes nothing any more.
            self.desk.ack([self.out.pop(place)[0]])
        for place in [one for one in self.prepared if one[0] == partition and one[1] < start]:
            del self.prepared[place]

    @rule()
    def purge(self) -> None:
        if self.desk.random.random() < 0.3:
            self.desk.queue.purge([self.topic.end(one) for one in range(PARTITIONS)])
            self.desk.save()
            self.out.clear()
            self.prepared.clear()
            self.late.clear()
            for place in self.places():
                self.done.setdefault(place, "purged")

    @rule()
    def crash(self) -> None:
        """Whoever opens the queue again knows who has what, and until when."""
        self.desk.open()
        self.late.clear()
        self.discard()
        for place, (delivery, _) in self.out.items():
            partition = self.desk.queue.partitions[place[0]]
            assert place[1] not in partition.waiting
            assert delivery.attempt == self.tries[place]

    @rule()
    def snapshot(self) -> None:
        """What the broker does so that its journal stays short."""
        before = self.desk.replayed()
        journal = self.desk.journal
        kept = journal[self.first_open() :]
        self.desk.write_out()
        self.desk.journal[:] = kept
        self.desk.save()
        self.same(before, self.desk.replayed())

    def first_open(self) -> int:
        """Where in the journal the first transaction begins that has not ended."""
        first: dict[int, int] = {}
        for place, entry in enumerate(self.desk.journal):
            if isinstance(entry, Ended):
                first.pop(entry.producer_id, None)
                continue
            for event in decode_events(entry[1]):
                if isinstance(event, Prepared):
                    first.setdefault(event.producer_id, place)
        return min(first.values(), default=len(self.desk.journal))

    # What must be so

    def finish(self, place: Place, how: str) -> None:
        assert place not in self.done, f"{place} is done twice"
        self.done[place] = how
        self.out.pop(place, None)

    def discard(self) -> None:
        before = len(self.desk.note_dead_lettered)
        self.desk.discard()
        for partition, offset, reason, attempts in self.desk.note_dead_lettered[before:]:
            if offset < self.topic.starts[partition]:
                continue
            self.finish((partition, offset), "dead")
            assert attempts == self.tries[partition, offset]
            assert reason == "broken" or attempts == DELIVERIES_MAX

    @invariant()
    def the_journal_says_what_the_queue_knows(self) -> None:
        ledgers = self.desk.replayed()
        live = {one.number: one.ledger for one in self.desk.queue.partitions}
        self.same(ledgers, live)

    def same(self, some: dict, others: dict) -> None:  # type: ignore[type-arg]
        for number, start in enumerate(self.topic.starts):
            views = []
            for ledgers in (some, others):
                ledger = ledgers.get(number)
                retries = {} if ledger is None else ledger.retries
                views.append(
                    (
                        [
                            ledger is not None and ledger.is_done(offset)
                            for offset in range(start, self.topic.end(number))
                        ],
                        {offset: one for offset, one in retries.items() if offset >= start},
                        {} if ledger is None else self.held(ledger, start),
                    )
                )
            assert views[0] == views[1]

    @staticmethod
    def held(ledger: Ledger, start: int) -> dict[int, int]:
        return {
            offset: producer_id
            for producer_id, retries in ledger.prepared.items()
            for offset in retries
            if offset >= start
        }

    @invariant()
    def every_message_is_in_one_state(self) -> None:
        figures = stats(self.desk.queue, self.now_ms)
        for partition, start in enumerate(self.topic.starts):
            end = self.topic.end(partition)
            states = [one.state for one in peek(self.desk.queue, partition, range(start, end))]
            for offset, state in zip(range(start, end), states, strict=True):
                assert (state == "done") == ((partition, offset) in self.done)
                assert (state == "prepared") == ((partition, offset) in self.prepared)
            row = figures.partitions[partition]
            waiting = self.desk.queue.partitions[partition].waiting
            due = sum(1 for one in waiting if one >= start)
            assert row.ready + row.retrying - (len(waiting) - due) == sum(
                states.count(state) for state in ("ready", "retrying")
            )
            assert row.parked == states.count("parked")
            assert row.prepared == states.count("prepared")
            assert all(count >= 0 for count in row.lanes)
        assert figures.in_flight == self.desk.queue.limits.unacked.total

    @precondition(lambda self: self.desk.random.random() < 0.05)
    @rule()
    def everything_is_done_in_the_end(self) -> None:
        self.end(1, True)
        self.end(2, False)
        for _ in range(400):
            self.pass_time(2500)
            self.receive(6, "anna")
            if not self.out and all(place in self.done for place in self.places()):
                break
            self.ack(0)
        assert [place for place in self.places() if place not in self.done] == []


class KeyedQueueMachine(QueueMachine):
    key_order = True


class KeyBatchesMachine(KeyedQueueMachine):
    """One receive may have several messages of a key; all are of one lane, so that order counts."""

    key_batches = True
    late_acks = True

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        count=st.integers(1, 4),
        lane=st.just(0),
        key=st.sampled_from(KEYS),
    )
    def produce(self, partition: int, count: int, lane: int, key: bytes | None) -> None:
        super().produce(partition, count, 2, key)

    def check_key(self, place: Place) -> None:
        partition, offset = place
        keys = self.topic.keys[partition]
        if keys[offset] is None:
            return
        for other in (*self.out, *self.prepared):
            if other[0] == partition and keys[other[1]] == keys[offset]:
                is_with_us = other in self.out and self.calls[other] == self.call
                assert is_with_us or other[1] > offset, "somebody else has an earlier one"
        for lower in range(self.topic.starts[partition], offset):
            if keys[lower] == keys[offset]:
                is_before = (partition, lower) in self.done or (partition, lower) in self.out
                assert is_before, f"{offset} overtakes {lower} of its key"


class FairQueueMachine(QueueMachine):
    """Tenants are noisy with two in flight, so that most of what happens meets one."""

    fair_keys = True
    late_acks = True

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.desk.queue.fairness.tenants.noisy_out_min = 2

    @rule()
    def crash(self) -> None:
        super().crash()
        self.desk.queue.fairness.tenants.noisy_out_min = 2

    @invariant()
    def shares_are_those_of_what_is_in_flight(self) -> None:
        queue = self.desk.queue
        out: dict[bytes, int] = {}
        for lease in queue.leases:
            for index in lease.outstanding():
                key = self.topic.keys[lease.partition][lease.offsets[index]]
                is_counted = lease.tenants is not None  # not if it is of an earlier life
                if key is not None and is_counted:
                    out[key] = out.get(key, 0) + 1
        for key in KEYS:
            if key is not None:
                assert queue.fairness.tenants.of(key).out == out.get(key, 0)
        aside = [
            (one.number, offset)
            for one in queue.partitions
            for offset, due_ms in one.waiting.items()
            if due_ms == ASIDE_MS
        ]
        listed = [place for key in KEYS if key for place in queue.fairness.tenants.of(key).aside]
        assert set(aside) <= set(listed), "a message waits for a turn that never comes"
        assert len(listed) == queue.fairness.tenants.aside_count


_SETTINGS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestQueue = QueueMachine.TestCase
TestQueue.settings = _SETTINGS
TestKeyedQueue = KeyedQueueMachine.TestCase
TestKeyedQueue.settings = _SETTINGS
TestFairQueue = FairQueueMachine.TestCase
TestFairQueue.settings = _SETTINGS
TestKeyBatches = KeyBatchesMachine.TestCase
TestKeyBatches.settings = _SETTINGS


@pytest.mark.parametrize(
    "kind", [QueueMachine, KeyedQueueMachine, KeyBatchesMachine, FairQueueMachine]
)
def test_a_long_life(kind: type[QueueMachine]) -> None:
    """Many steps at random, where hypothesis takes few: state that builds up slowly."""
    source = random.Random(11)
    machine = kind()
    machine.begin(1)
    for _ in range(1500):
        step = source.random()
        if step < 0.3:
            machine.produce(
                source.randrange(PARTITIONS),
                source.randint(1, 4),
                source.randrange(5),
                source.choice(KEYS),
            )
        elif step < 0.6:
            machine.receive(source.randint(1, 6), source.choice(["anna", "bert"]))
        elif step < 0.7:
            machine.ack(source.randint(0, 2))
        elif step < 0.73:
            machine.prepare(source.randint(0, 2), source.randint(1, 2))
        elif step < 0.75:
            machine.end(source.randint(1, 2), source.random() < 0.6)
        elif step < 0.83:
            machine.nack(source.randint(0, 3), source.choice([None, 0, 50, 700]))
        elif step < 0.86:
            machine.reject(source.randint(1, 4))
        elif step < 0.9:
            machine.extend(source.randint(0, 3), source.choice([1, 300, 2000]))
        elif step < 0.92 and machine.late_acks:
            if machine.key_order or source.random() < 0.5:
                machine.ack_late(source.randint(0, 2))
            else:
                machine.extend_late(source.randint(0, 2), source.choice([1, 300, 2000]))
        elif step < 0.97:
            machine.pass_time(source.choice([1, 100, 400, 1000]))
        elif step < 0.98:
            machine.snapshot()
        elif step < 0.99:
            machine.lose_the_oldest(source.randrange(PARTITIONS), source.randint(0, 9))
        else:
            machine.crash()
        machine.the_journal_says_what_the_queue_knows()
        machine.every_message_is_in_one_state()
    machine.everything_is_done_in_the_end()


def test_what_was_prepared_and_then_lost_is_not_prepared_after_a_snapshot_and_a_crash() -> None:
    machine = KeyedQueueMachine()
    machine.begin(seed=0)
    machine.produce(count=1, key=None, lane=0, partition=0)
    machine.receive(consumer="anna", count=1)
    machine.prepare(producer_id=1, share=0)
    machine.lose_the_oldest(partition=0, step=1)
    machine.snapshot()
    machine.crash()
    machine.every_message_is_in_one_state()
