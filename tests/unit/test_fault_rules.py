"""The rules of the fault campaign find what they are for: hand-made histories that break each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.faults import replicas, rules
from tests.integration.faults.operations import (
    Clocks,
    Fault,
    History,
    Kind,
    Operation,
    Outcome,
)

OK, REFUSED, UNKNOWN = Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN
NO_CLOCKS = Clocks()


def operation(kind: Kind, message: str, start: float, end: float, **more: Any) -> Operation:
    values = {"outcome": OK, "process": "p", **more}
    return Operation(workload="w", kind=kind, message=message, start=start, end=end, **values)


def send(message: str, outcome: Outcome = OK, at: float = 0.0, **more: Any) -> Operation:
    return operation(Kind.SEND, message, at, at + 0.1, outcome=outcome, **more)


def delivery(message: str, at: float, lease: float = 10.0, **more: Any) -> Operation:
    """One whose call took 0.1 s."""
    values = {"receipt": f"r{at}", "call": f"c{at}", "seconds": lease, **more}
    return operation(Kind.DELIVERY, message, at, at + 0.1, **values)


def ack(message: str, at: float, outcome: Outcome = OK, **more: Any) -> Operation:
    return operation(Kind.ACK, message, at, at + 0.1, outcome=outcome, **more)


def found(violations: list[rules.Violation]) -> list[tuple[str, str]]:
    return [(one.rule, one.message) for one in violations]


# Logs


def test_a_message_that_was_acknowledged_and_is_not_there_is_lost() -> None:
    assert found(rules.log_rules([send("a"), send("b")], {"b": 1})) == [("lost", "a")]


@pytest.mark.parametrize("outcome", Outcome)
def test_a_message_that_is_there_twice_is_doubled_whatever_was_answered(outcome: Outcome) -> None:
    assert ("doubled", "a") in found(rules.log_rules([send("a", outcome)], {"a": 2}))


def test_a_message_whose_outcome_is_unknown_may_be_there_or_not() -> None:
    assert rules.log_rules([send("a", UNKNOWN), send("b", UNKNOWN)], {"a": 1}) == []


def test_a_message_that_was_refused_is_not_there() -> None:
    assert found(rules.log_rules([send("a", REFUSED)], {"a": 1})) == [("refused yet there", "a")]
    assert rules.log_rules([send("a", REFUSED)], {}) == []
    # Another attempt may have succeeded.
    assert rules.log_rules([send("a", UNKNOWN), send("a", REFUSED)], {"a": 1}) == []


def test_a_message_that_nobody_sent_is_found() -> None:
    assert found(rules.log_rules([], {"x": 1})) == [("never sent", "x")]


def test_messages_of_one_producer_that_changed_places_are_found() -> None:
    sends = [send("a", group="p", number=0), send("b", group="p", number=1)]
    assert found(rules.disordered(sends, {0: ["b", "a"]})) == [("disordered", "a")]
    assert rules.disordered(sends, {0: ["a", "b"]}) == []
    assert rules.disordered(sends, {0: ["b"], 1: ["a"]}) == []
    others = [send("a", group="p", number=1), send("b", group="q", number=0)]
    assert rules.disordered(others, {0: ["a", "b"]}) == []


def test_an_offset_that_holds_something_else_later_is_found() -> None:
    before = {("t", 0, 0): "a", ("t", 0, 1): "b"}
    assert found(rules.changed(before, {("t", 0, 0): "x", ("t", 0, 1): "b"})) == [("changed", "a")]
    assert found(rules.changed(before, {("t", 0, 0): "a"})) == [("changed", "b")]
    assert rules.changed(before, {**before, ("t", 0, 2): "c"}) == []


# Delays


def test_a_message_that_is_seen_before_its_time_is_early() -> None:
    delayed = send("a", at=10.0, seconds=5.0)
    assert found(rules.early([delayed], {"a": 14.9}, NO_CLOCKS)) == [("early", "a")]
    assert rules.early([delayed], {"a": 15.0}, NO_CLOCKS) == []
    assert rules.early([send("a", at=10.0)], {"a": 10.0}, NO_CLOCKS) == []


def test_clocks_excuse_only_what_they_differ_by_while_a_message_waits() -> None:
    clocks = Clocks()
    clocks.change(100.0, {1: 0.0, 2: 3.0})
    clocks.change(200.0, {1: 3.0, 2: 3.0})
    assert rules.early([send("a", at=110.0, seconds=5.0)], {"a": 112.1}, clocks) == []
    late = rules.early([send("a", at=110.0, seconds=5.0)], {"a": 111.9}, clocks)
    assert found(late) == [("early", "a")]
    # Before they were wrong, and when they are all wrong by the same, nothing is excused.
    for at in (10.0, 210.0):
        early = rules.early([send("a", at=at, seconds=5.0)], {"a": at + 4.0}, clocks)
        assert found(early) == [("early", "a")]
    # A clock that is set while the message waits excuses as much as it was set by.
    assert rules.early([send("a", at=98.0, seconds=5.0)], {"a": 101.0}, clocks) == []


def test_a_message_that_was_cancelled_does_not_appear_and_one_that_was_not_does() -> None:
    cancel = operation(Kind.CANCEL, "a", 1.0, 1.1)
    assert found(rules.cancelled_yet_there([cancel], {"a": 1})) == [("cancelled yet there", "a")]
    assert rules.cancelled_yet_there([cancel], {}) == []
    refused = operation(Kind.CANCEL, "a", 1.0, 1.1, outcome=REFUSED)
    assert found(rules.cancelled_yet_there([refused], {})) == [("lost", "a")]
    unknown = operation(Kind.CANCEL, "a", 1.0, 1.1, outcome=UNKNOWN)
    assert rules.cancelled_yet_there([unknown], {}) == []
    assert rules.cancelled_yet_there([unknown], {"a": 1}) == []


# Queues


def test_a_message_that_is_received_after_its_ack_was_answered_is_found() -> None:
    history = [delivery("a", 1.0), ack("a", 2.0), delivery("a", 3.0)]
    again = [("settled yet delivered", "a")]
    assert found(rules.settled_again(history, rules.Stale())) == again
    # A receive that had begun before the answer may still bring it.
    assert rules.settled_again([*history[:2], delivery("a", 2.05)], rules.Stale()) == []
    for outcome in (UNKNOWN, REFUSED):
        unsure = [delivery("a", 1.0), ack("a", 2.0, outcome), delivery("a", 3.0)]
        assert rules.settled_again(unsure, rules.Stale()) == []


def test_a_stale_owner_is_excused_until_its_bound_and_counted() -> None:
    cut = Fault(name="cut", text="", start=2.5, end=5.0, may_leave_stale_owner=True)
    history = [delivery("a", 1.0), ack("a", 2.0), delivery("a", 9.0)]
    stale = rules.Stale([cut], seconds=5.0)
    assert rules.settled_again(history, stale) == []
    assert [one.start for one in stale.excused] == [9.0]
    assert len(rules.settled_again(history, rules.Stale([cut], seconds=3.0))) == 1
    killed = Fault(name="kill", text="", start=2.5, end=5.0)
    assert len(rules.settled_again(history, rules.Stale([killed], seconds=5.0))) == 1


def test_a_message_that_two_consumers_hold_is_found() -> None:
    history = [delivery("a", 1.0, lease=10.0), delivery("a", 5.0)]
    assert found(rules.two_leases(history, rules.Stale())) == [("two leases", "a")]
    after = [delivery("a", 1.0, lease=10.0), delivery("a", 10.95)]
    assert rules.two_leases(after, rules.Stale()) == []
    # Which of two calls at the same time was first cannot be known.
    meanwhile = [delivery("a", 1.0, lease=1.0), delivery("a", 1.05, lease=1.0)]
    assert rules.two_leases(meanwhile, rules.Stale()) == []


def test_a_message_that_comes_twice_in_one_answer_is_found() -> None:
    history = [delivery("a", 1.0, call="c"), delivery("a", 1.0, call="c")]
    assert found(rules.two_leases(history, rules.Stale())) == [("two leases", "a")]


@pytest.mark.parametrize(
    ("change", "is_held"),
    [
        (operation(Kind.RELEASE, "a", 2.0, 2.1, receipt="r1.0"), False),
        (operation(Kind.RELEASE, "a", 2.0, 2.1, receipt="r1.0", outcome=UNKNOWN), False),
        (operation(Kind.RELEASE, "a", 2.0, 2.1, receipt="r1.0", outcome=REFUSED), True),
        (operation(Kind.EXTEND, "a", 2.0, 2.1, receipt="r1.0", seconds=2.0), False),
        (operation(Kind.EXTEND, "a", 2.0, 2.1, receipt="r1.0", seconds=30.0), True),
        (
            operation(Kind.EXTEND, "a", 2.0, 2.1, receipt="r1.0", seconds=2.0, outcome=UNKNOWN),
            False,
        ),
        (operation(Kind.RELEASE, "a", 2.0, 2.1, receipt="another"), True),
    ],
)
def test_a_lease_ends_when_its_holder_says_so(change: Operation, is_held: bool) -> None:
    history = [delivery("a", 1.0, lease=10.0), change, delivery("a", 6.0)]
    assert bool(rules.two_leases(history, rules.Stale())) is is_held


def test_an_extended_lease_holds_beyond_its_first_end() -> None:
    extend = operation(Kind.EXTEND, "a", 2.0, 2.1, receipt="r1.0", seconds=30.0)
    history = [delivery("a", 1.0, lease=10.0), extend, delivery("a", 20.0)]
    assert found(rules.two_leases(history, rules.Stale())) == [("two leases", "a")]


def test_an_ack_that_was_refused_and_yet_carried_out_is_found() -> None:
    history = [delivery("a", 1.0), ack("a", 2.0, UNKNOWN), ack("a", 3.0, REFUSED)]
    assert found(rules.refused_yet_done(history)) == [("refused yet done", "a")]
    assert rules.refused_yet_done([*history, delivery("a", 4.0)]) == []
    assert rules.refused_yet_done([*history, delivery("a", 4.0), ack("a", 5.0)]) == []
    assert rules.refused_yet_done([delivery("a", 1.0), ack("a", 2.0, UNKNOWN)]) == []


def test_a_message_that_nobody_got_or_nobody_could_settle_is_found() -> None:
    sends = [send("a"), send("b"), send("c"), send("d", UNKNOWN)]
    operations = [delivery("b", 1.0), delivery("c", 1.0), ack("c", 2.0)]
    counts = {"a": 1, "b": 1, "c": 1}
    expected = [("never delivered", "a"), ("never settled", "b")]
    assert found(rules.unfinished(sends, operations, counts)) == expected


# FIFO


def fifo(*messages: str) -> list[Operation]:
    return [send(one, group="g", number=number) for number, one in enumerate(messages)]


def test_a_message_that_overtakes_another_of_its_group_is_found() -> None:
    held = [delivery("a", 1.0), delivery("b", 2.0)]
    overtaken = [("overtaken", "b")]
    assert found(rules.overtaken(fifo("a", "b"), held, rules.Stale())) == overtaken
    waiting = [delivery("b", 2.0), delivery("a", 3.0)]
    assert found(rules.overtaken(fifo("a", "b"), waiting, rules.Stale())) == overtaken
    backwards = [delivery("b", 1.0, call="c"), delivery("a", 1.0, call="c")]
    assert found(rules.overtaken(fifo("a", "b"), backwards, rules.Stale())) == overtaken


def test_messages_of_a_group_may_come_together_or_after_a_delete() -> None:
    together = [delivery("a", 1.0, call="c"), delivery("b", 1.0, call="c")]
    assert rules.overtaken(fifo("a", "b"), together, rules.Stale()) == []
    for outcome in (OK, UNKNOWN):
        deleted = [delivery("a", 1.0), ack("a", 1.5, outcome), delivery("b", 2.0)]
        assert rules.overtaken(fifo("a", "b"), deleted, rules.Stale()) == []
    refused = [delivery("a", 1.0), ack("a", 1.5, REFUSED), delivery("b", 2.0)]
    assert len(rules.overtaken(fifo("a", "b"), refused, rules.Stale())) == 1


def test_groups_of_a_fifo_queue_do_not_wait_for_each_other() -> None:
    sends = [send("a", group="g", number=0), send("b", group="h", number=1)]
    assert rules.overtaken(sends, [delivery("a", 1.0), delivery("b", 2.0)], rules.Stale()) == []


# Transactions


def transaction(outcome: Outcome) -> Operation:
    return operation(Kind.TRANSACTION, "t", 1.0, 2.0, outcome=outcome, values=("a|t", "b|t"))


@pytest.mark.parametrize(
    ("outcome", "first", "second", "rule"),
    [
        (OK, "ab", "ab", None),
        (OK, "ab", "a", "committed yet not there"),
        (OK, "", "", "committed yet not there"),
        (REFUSED, "", "", None),
        (REFUSED, "a", "", "aborted yet there"),
        (UNKNOWN, "", "", None),
        (UNKNOWN, "ab", "ab", None),
        (UNKNOWN, "ab", "", "half visible"),
    ],
)
def test_a_transaction_is_there_as_a_whole_or_not_at_all(
    outcome: Outcome, first: str, second: str, rule: str | None
) -> None:
    visible = {
        "one": {f"{letter}|t": 1 for letter in first},
        "two": {f"{letter}|t": 1 for letter in second},
    }
    expected = [] if rule is None else [(rule, "t")]
    assert found(rules.half_visible([transaction(outcome)], visible)) == expected


def test_an_input_without_exactly_one_output_is_found() -> None:
    outputs = {"one": {"a": 1, "b": 2, "c": 1}, "two": {"a": 1, "b": 1}}
    expected = [("not once", "b"), ("not once", "c")]
    assert found(rules.not_once(["a", "b", "c"], outputs)) == expected


# Offsets


def commit(number: int, at: float, outcome: Outcome = OK) -> Operation:
    return operation(Kind.COMMIT, "g", at, at + 0.1, outcome=outcome, group="g", number=number)


def fetch(number: int, at: float) -> Operation:
    return operation(Kind.FETCH, "g", at, at + 0.1, group="g", number=number)


def test_an_offset_that_is_older_than_the_last_answered_commit_is_stale() -> None:
    history = [commit(1, 1.0), commit(2, 2.0)]
    stale = [("stale offset", "g")]
    assert found(rules.stale_offsets([*history, fetch(1, 3.0)])) == stale
    assert found(rules.stale_offsets([*history, fetch(-1, 3.0)])) == stale
    assert found(rules.stale_offsets([*history, fetch(7, 3.0)])) == stale
    assert rules.stale_offsets([*history, fetch(2, 3.0)]) == []
    assert rules.stale_offsets([*history, fetch(1, 2.05)]) == []  # while the second is under way
    assert rules.stale_offsets([*history, fetch(2, 2.05)]) == []
    assert rules.stale_offsets([commit(1, 1.0, UNKNOWN), commit(2, 2.0), fetch(1, 3.0)]) == []
    assert rules.stale_offsets([commit(1, 1.0), commit(2, 2.0, UNKNOWN), fetch(2, 3.0)]) == []
    assert found(rules.stale_offsets([commit(1, 1.0), commit(2, 2.0, REFUSED), fetch(2, 3.0)])) == (
        stale
    )


def test_a_stream_group_that_gets_again_what_it_committed_is_found() -> None:
    again = delivery("a", 2.0, group="g", number=4)
    assert found(rules.read_again([commit(5, 1.0), again])) == [("read again", "a")]
    assert rules.read_again([commit(5, 1.0, UNKNOWN), again]) == []
    assert rules.read_again([commit(4, 1.0), again]) == []
    assert rules.read_again([commit(5, 1.95), again]) == []


# Replicas


def test_replicas_whose_bytes_differ_are_found_however_they_are_cut(tmp_path: Path) -> None:
    logs = {1: {"0.log": b"one", "3.log": b"two"}, 2: {"0.log": b"onetwo"}, 3: {"0.log": b"onetwO"}}
    digests = {}
    for node, files in logs.items():
        folder = tmp_path / str(node) / "orders" / "0"
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        digests[node] = replicas.digests(folder.glob("*.log"), tmp_path / str(node))
    assert replicas.different({1: digests[1], 2: digests[2]}) == []
    assert found(replicas.different(digests)) == [("replicas differ", "orders/0")]
    assert found(replicas.different({1: digests[1], 2: {}})) == [("replicas differ", "orders/0")]


def test_the_history_shows_everything_about_a_message(tmp_path: Path) -> None:
    history = History()
    for one in (send("a"), send("b"), transaction(OK)):
        history.add(one)
    assert len(history.about(["a"])) == 1
    assert len(history.about(["a|t"])) == 1
    assert history.counts()["w"] == {"send ok": 2, "transaction ok": 1}
    history.save(tmp_path / "history.jsonl")
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 3
