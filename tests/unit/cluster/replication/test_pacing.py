"""How fast copies that are behind are fed."""

from __future__ import annotations

import pytest

from goqueue.cluster.replication.pacing import (
    EXEMPT,
    NO_THROTTLE,
    PIECE_BYTES,
    SAVED_MS,
    UNDERWAY_BYTES_MAX,
    UNDERWAY_MS_MAX,
    Meter,
    Stragglers,
    TokenBucket,
)

MiB = 1 << 20


class Line(Stragglers[str]):
    """A leader that looks every 100 ms, and followers that ask again when they have got it."""

    def __init__(self, bytes_per_second: int = -1) -> None:
        super().__init__(bytes_per_second, now_ms=0)
        self.now_ms = 0
        self.got: dict[tuple[int, object], int] = {}
        self.order: list[tuple[int, object]] = []

    def copies(self, *copies: tuple[int, str, int]) -> None:
        self._all = {(node, place): throttle for node, place, throttle in copies}
        for node, place, throttle in copies:
            self.ask(node, place, "?", throttle=throttle)

    def feed(self, ms: int, *, piece_bytes: int = MiB) -> None:
        """Answer whoever has a turn, for so long; a batch may be as large as `piece_bytes`."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms += 100
            self.tick(self.now_ms)
            turns_left = 1000
            while turns_left and (turn := self.take(self.now_ms)) is not None:
                turns_left -= 1
                count = min(piece_bytes, turn.bytes_max)
                self.sent(turn, count, self.now_ms)
                key = turn.node, turn.place
                self.got[key] = self.got.get(key, 0) + count
                self.order.append(key)
                self.ask(turn.node, turn.place, "?", throttle=self._all[key])


@pytest.mark.parametrize("rate", [3_000, 50_000, 5 * MiB])
@pytest.mark.parametrize("piece_bytes", [100, 40_000, MiB])
def test_a_throttle_lets_its_bytes_pass_and_no_more(rate: int, piece_bytes: int) -> None:
    line = Line()
    line.copies((2, "a", rate), (2, "b", rate), (3, "a", rate))
    line.feed(60_000, piece_bytes=piece_bytes)
    sent = sum(line.got.values())
    saved = rate * SAVED_MS // 1000
    assert sent <= rate * 60 + saved + piece_bytes
    if piece_bytes * 10 * 1000 > rate:  # the most that this test sends in 100 ms
        assert sent >= rate * 60 * 0.95
    assert min(line.got.values()) >= 0.2 * sent - piece_bytes, "somebody gets next to nothing"


def test_a_piece_that_is_larger_than_a_second_holds_up_the_next_for_as_long_as_it_was_worth() -> (
    None
):
    bucket = TokenBucket(1_000, now_ms=0)
    assert bucket.is_open(0)
    bucket.take(10_000)
    assert not bucket.is_open(9_700)
    assert bucket.is_open(9_760)
    assert not bucket.is_full(9_760)


def test_bytes_are_not_saved_up_for_long() -> None:
    bucket = TokenBucket(1_000_000, now_ms=0)
    bucket.take(bucket.piece_bytes)
    assert bucket.is_full(3_600_000)
    bucket.take(1_000_000 * SAVED_MS // 1000)
    assert not bucket.is_open(3_600_000)


def test_a_clock_that_stands_still_or_goes_back_makes_no_bytes() -> None:
    bucket = TokenBucket(1_000, now_ms=10_000)
    bucket.take(1_000)
    assert not bucket.is_open(9_000)
    assert not bucket.is_open(9_500)


def test_moves_with_another_throttle_have_one_of_their_own() -> None:
    line = Line()
    line.copies((2, "slow", 10_000), (2, "fast", 100_000))
    line.feed(20_000, piece_bytes=1_000)
    assert line.got[2, "slow"] == pytest.approx(200_000, rel=0.05)
    assert line.got[2, "fast"] == pytest.approx(2_000_000, rel=0.05)


def test_what_a_node_may_send_in_all_is_shared_by_all_who_are_behind() -> None:
    line = Line(100_000)
    line.copies((2, "a", NO_THROTTLE), (3, "b", NO_THROTTLE), (3, "slow", 10_000))
    line.feed(20_000, piece_bytes=1_000)
    assert sum(line.got.values()) == pytest.approx(2_000_000, rel=0.05)
    assert line.got[3, "slow"] == pytest.approx(200_000, rel=0.1)


def test_a_copy_that_all_wait_for_is_exempt() -> None:
    line = Line(1_000)
    line.copies((2, "needed", EXEMPT), (3, "other", NO_THROTTLE))
    line.feed(1_000)
    assert line.got[2, "needed"] >= 10 * MiB
    assert line.got[3, "other"] <= 3_000


def test_few_bytes_are_on_the_way_to_one_node() -> None:
    line: Stragglers[str] = Stragglers(-1, now_ms=0)
    for number in range(100):
        for node in (2, 3):
            line.ask(node, number, f"{node}/{number}", throttle=NO_THROTTLE)
    sent: dict[int, int] = {2: 0, 3: 0}
    while (turn := line.take(0)) is not None:
        assert turn.bytes_max == PIECE_BYTES
        line.sent(turn, turn.bytes_max, 0)
        sent[turn.node] += turn.bytes_max
        last = turn
    assert sent == {2: UNDERWAY_BYTES_MAX, 3: UNDERWAY_BYTES_MAX}
    # Once a copy asks again, what it was sent has come.
    line.heard(last.node, last.place)
    again = line.take(0)
    assert again is not None
    assert again.node == last.node


def test_answers_that_nobody_speaks_of_again_hold_up_nobody_for_long() -> None:
    line: Stragglers[str] = Stragglers(-1, now_ms=0)
    for number in range(10):
        line.ask(2, number, "?", throttle=NO_THROTTLE)
    while (turn := line.take(0)) is not None:
        line.sent(turn, turn.bytes_max, 0)
    line.tick(UNDERWAY_MS_MAX)
    assert line.take(UNDERWAY_MS_MAX) is None
    line.tick(UNDERWAY_MS_MAX + 1)
    assert line.take(UNDERWAY_MS_MAX + 1) is not None


def test_a_later_question_takes_the_place_of_the_one_before() -> None:
    line: Stragglers[str] = Stragglers(-1, now_ms=0)
    line.ask(2, "a", "first", throttle=NO_THROTTLE)
    line.ask(2, "a", "second", throttle=500)
    turn = line.take(0)
    assert turn is not None
    assert (turn.question, turn.throttle) == ("second", 500)
    assert line.take(0) is None
    assert not line.has_waiting


def test_a_question_that_is_withdrawn_or_forgotten_has_no_turn() -> None:
    line: Stragglers[str] = Stragglers(-1, now_ms=0)
    line.ask(2, "a", "?", throttle=NO_THROTTLE)
    line.ask(3, "a", "!", throttle=NO_THROTTLE)
    assert line.withdraw(2, "a") == "?"
    assert line.withdraw(2, "a") is None
    line.forget("a", [2, 3])
    assert not line.has_waiting
    assert line.take(0) is None


@pytest.mark.parametrize("rate", [1_000, 1_000_000])
def test_a_meter_tells_the_pace_of_late(rate: int) -> None:
    meter = Meter(0)
    for at_ms in range(0, 3_000, 100):
        meter.add(rate // 10, at_ms)
    assert meter.per_second(3_000) == pytest.approx(rate, rel=0.1), "from the beginning on"
    for at_ms in range(3_000, 60_000, 100):
        meter.add(rate // 10, at_ms)
    assert meter.per_second(60_000) == pytest.approx(rate, rel=0.05)
    assert meter.per_second(160_000) < rate / 1000, "nothing came for long"
