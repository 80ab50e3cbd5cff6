"""The checks of the transaction simulation notice when something is wrong.

Each of these breaks one rule that keeps transactions whole, and runs the simulation until a seed
shows it. Were none of them to show it, the simulation would prove nothing about that rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from goqueue.broker.transactions.host import TransactionShard
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import GoQueueError
from goqueue.model.names import ProducerIdentity
from goqueue.transactions import Coordinator, Persist, WriteMarkers
from goqueue.transactions.records import Standing
from goqueue.transactions.transaction import Transaction
from tests.simulation.test_cluster_transactions import (
    test_every_position_is_there_once_and_whole_whichever_nodes_fail as run_seed,
)

# About every third notices. The first notices each of them, and soon; when it does so no longer,
# because something has changed, the others are asked.
SEEDS = (10, *range(25))

Patch = Callable[[pytest.MonkeyPatch], None]


def skip_a_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of several participants never hears how the transaction ended."""
    write_markers = TransactionShard._write_markers

    def write_all_but_one(self: TransactionShard, effect: WriteMarkers) -> None:
        *some, last = effect.partitions
        if some:
            effect = msgspec.structs.replace(effect, partitions=tuple(some))
            self._clock.call_soon(partial(self._marked, effect, last))
        write_markers(self, effect)

    monkeypatch.setattr(TransactionShard, "_write_markers", write_all_but_one)


def answer_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator acts on its decision as soon as it is written, on its own disk's cache."""

    def persist(self: TransactionShard, effect: Persist) -> None:
        batch = encode_batch([Record(effect.key, effect.value)])
        failure: GoQueueError | None = None
        try:
            self._partition.write(memoryview(batch), now_ms=0)
        except GoQueueError as error:
            failure = error
        self._clock.call_soon(partial(self._persisted, effect, -1, failure))

    monkeypatch.setattr(TransactionShard, "_persist", persist)


def let_old_epochs_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that was replaced can end the transaction of its successor, or its own."""

    def check(self: Coordinator, transaction: Transaction, _: ProducerIdentity) -> Standing:
        assert transaction.current is not None
        return transaction.current

    monkeypatch.setattr(Coordinator, "_check_identity", check)


@pytest.mark.parametrize(
    "break_it", [skip_a_marker, answer_before_it_is_durable, let_old_epochs_go_on]
)
def test_a_broken_rule_is_noticed(break_it: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    assert any(_is_noticed(seed) for seed in SEEDS)


def _is_noticed(seed: int) -> bool:
    try:
        run_seed(seed)
    except AssertionError:
        return True
    return False
