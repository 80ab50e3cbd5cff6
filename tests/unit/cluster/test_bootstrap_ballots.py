"""New nodes agree on one cluster, whatever gets lost and whoever fails on the way."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from goqueue.cluster.bootstrap import (
    NO_BALLOT,
    Accepted,
    Attempt,
    Ballot,
    Formed,
    Found,
    Join,
    Prepare,
    Propose,
    Question,
    Self,
    Stand,
    answer_question,
    decode_question,
    encode_question,
    learned,
    listed,
    next_step,
)
from goqueue.model.errors import ForeignCluster, MalformedRequest


def node(number: int, *nodes: int, disk: bytes = b"", **fields: str) -> Self:
    me = Self(number, disk or b"disk%d" % number, f"offer{number}", (), **fields)
    return listed(me, nodes or (1, 2, 3))


def prepared(ballot: Ballot, *numbers: int) -> tuple[Attempt, list[Self]]:
    """An attempt of the first of these nodes, to which all of them have promised themselves."""
    nodes = [node(number) for number in numbers]
    attempt = Attempt(nodes[0], ballot, numbers)
    nodes = [answer_question(one, attempt.question) for one in nodes]
    for one in nodes:
        attempt.hear(one)
    return attempt, nodes


def test_most_nodes_found_a_cluster_and_the_rest_belongs_to_it_too() -> None:
    attempt, nodes = prepared(Ballot(1, 1, b"disk1"), 1, 2)
    assert attempt.may_propose(is_late=False)
    attempt.propose()
    attempt.hear(answer_question(nodes[0], attempt.question))
    assert attempt.decided is None
    attempt.hear(answer_question(nodes[1], attempt.question))
    assert attempt.decided is not None
    assert attempt.decided.voters == (1, 2, 3)
    assert attempt.decided.absent == (3,)
    assert attempt.decided.cluster_id == "offer1"


def test_those_that_are_awaited_are_done_without_when_it_is_late() -> None:
    me = node(1)
    attempt = Attempt(me, Ballot(1, 1, b"disk1"), (1, 2, 3))
    for one in (me, node(2)):
        assert not attempt.may_propose(is_late=True)
        attempt.hear(answer_question(one, attempt.question))
    assert not attempt.may_propose(is_late=False)
    assert attempt.may_propose(is_late=True)


def test_what_may_be_agreed_on_already_is_proposed_again() -> None:
    first, nodes = prepared(Ballot(1, 1, b"disk1"), 1, 2)
    first.propose()
    accepted = answer_question(nodes[1], first.question)
    second = Attempt(node(3), Ballot(2, 3, b"disk3"), (2, 3))
    for one in (accepted, node(3)):
        second.hear(answer_question(one, second.question))
    second.propose()
    assert isinstance(first.question, Propose)
    assert isinstance(second.question, Propose)
    assert second.question.formed == first.question.formed


def test_of_what_was_accepted_the_newest_may_be_agreed_on() -> None:
    attempt = Attempt(node(1), Ballot(9, 1, b"disk1"), (2, 3))
    for number, round_ in ((2, 7), (3, 8)):
        before = Accepted(Ballot(round_, number, b""), Formed(f"of round {round_}", ()))
        one = msgspec.structs.replace(node(number), accepted=before)
        attempt.hear(answer_question(one, attempt.question))
    attempt.propose()
    assert isinstance(attempt.question, Propose)
    assert attempt.question.formed.cluster_id == "of round 8"


def test_a_later_attempt_overrules_an_earlier_one() -> None:
    attempt, nodes = prepared(Ballot(1, 1, b"disk1"), 1, 2)
    attempt.propose()
    later = answer_question(nodes[1], Prepare(Ballot(2, 3, b"disk3"), (1, 2, 3), True))
    assert answer_question(later, attempt.question) == later
    attempt.hear(later)
    assert attempt.is_overruled
    assert not attempt.may_propose(is_late=True)


def test_a_node_that_lost_its_disk_since_it_promised_does_not_accept() -> None:
    attempt, _ = prepared(Ballot(1, 1, b"disk1"), 1, 2)
    attempt.propose()
    other = msgspec.structs.replace(node(2, disk=b"another"), promised=attempt.ballot)
    assert answer_question(other, attempt.question) == other


@pytest.mark.parametrize(
    "unwilling",
    [
        node(2, 1, 2, 4),
        learned(node(2), (1, 2, 3)),
        msgspec.structs.replace(node(2), joins_only=True),
        msgspec.structs.replace(node(2), formed=Formed("c", ())),
        msgspec.structs.replace(node(2), promised=Ballot(9, 1, b"")),
    ],
)
def test_who_knows_better_promises_nothing(unwilling: Self) -> None:
    question = Prepare(Ballot(1, 1, b"disk1"), (1, 2, 3), True)
    assert answer_question(unwilling, question) == unwilling
    assert answer_question(node(2), question).promised == question.ballot


def test_the_name_in_the_settings_of_one_is_that_of_the_cluster() -> None:
    attempt = Attempt(node(1), Ballot(1, 1, b"disk1"), (1, 2))
    for one in (node(1), node(2, configured_id="ours")):
        attempt.hear(answer_question(one, attempt.question))
    attempt.propose()
    assert isinstance(attempt.question, Propose)
    assert attempt.question.formed.cluster_id == "ours"


def test_questions_are_read_as_they_are_written_and_nothing_else_is() -> None:
    attempt, _ = prepared(Ballot(1, 1, b"disk1"), 1, 2)
    assert decode_question(encode_question(attempt.question)) == attempt.question
    attempt.propose()
    assert decode_question(encode_question(attempt.question)) == attempt.question
    random = Random(1)
    for length in range(40):
        with pytest.raises(MalformedRequest):
            decode_question(random.randbytes(length))


LETTERS_MAX = 60  # on their way at once; more would only be older


class Model:
    """Nodes of one list, and messages between them that come late, twice or never."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.numbers = tuple(range(1, self.random.randint(1, 5) + 1))
        self.disks = 0
        self.nodes = {number: self.fresh(number) for number in self.numbers}
        self.heard: dict[int, dict[int, Self]] = {number: {} for number in self.numbers}
        self.attempts: dict[int, Attempt] = {}
        self.letters: list[tuple[int, int, Question | Self | None]] = []  # from, to, what
        self.decided: set[Formed] = set()
        self.rudeness = 0.1  # rules of politeness are not what keeps it safe
        self.forgetfulness = 0.0  # how often a node ends before it has written down what it knows

    def fresh(self, number: int, *, joins_only: bool = False) -> Self:
        self.disks += 1
        me = node(number, *self.numbers, disk=b"disk%d" % self.disks)
        return msgspec.structs.replace(me, offered_id=f"o{self.disks}", joins_only=joins_only)

    def act(self, number: int) -> None:
        """A node looks around, stands, or goes on with an attempt."""
        me, attempt = self.nodes[number], self.attempts.get(number)
        if me.formed is None and attempt is None:
            with_luck = self.random.random() < 0.5
            step = next_step(me, self.heard[number], is_patient=with_luck)
            if isinstance(step, Found | Join) and self.random.random() >= self.forgetfulness:
                self.nodes[number] = msgspec.structs.replace(me, formed=step.formed)
                return
            if isinstance(step, Stand) or self.random.random() < self.rudeness:
                others = self.heard[number].values()
                top = max(one.promised.round for one in (me, *others))
                attempt = Attempt(me, Ballot(top + 1, number, me.disk), self.numbers)
                self.attempts[number] = attempt
        if attempt is not None:
            if attempt.may_propose(is_late=self.random.random() < 0.5):
                attempt.propose()
            elif self.random.random() < self.rudeness or attempt.is_overruled:
                del self.attempts[number]
                return
        question = None if attempt is None else attempt.question
        self.letters += [(number, other, question) for other in self.numbers]

    def deliver(self) -> None:
        at = self.random.randrange(len(self.letters))
        source, target, what = self.letters[at]
        if self.random.random() < 0.8:
            self.letters.pop(at)
        if self.random.random() < 0.1:
            return
        if not isinstance(what, Self):
            if what is not None:
                self.nodes[target] = answer_question(self.nodes[target], what)
            self.letters.append((target, source, self.nodes[target]))
            return
        if source != target:
            self.heard[target][source] = what
        attempt = self.attempts.get(target)
        if attempt is not None:
            attempt.hear(what)
            if attempt.decided is not None:
                self.decided.add(attempt.decided)
                del self.attempts[target]
                if self.random.random() < self.forgetfulness:
                    return
                me = msgspec.structs.replace(self.nodes[target], formed=attempt.decided)
                self.nodes[target] = me

    def restart(self, number: int) -> None:
        """The process ends: what it had on disk is all that is left."""
        self.attempts.pop(number, None)
        self.heard[number] = {}

    def lose_disk(self, number: int, *, joins_only: bool) -> None:
        self.restart(number)
        self.nodes[number] = self.fresh(number, joins_only=joins_only)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            is_quiet = len(self.letters) < LETTERS_MAX and self.random.random() < 0.15
            if not self.letters or is_quiet:
                self.act(self.random.choice(self.numbers))
            elif self.random.random() < 0.01:
                self.restart(self.random.choice(self.numbers))
            else:
                self.deliver()
            formed = {one.formed for one in self.nodes.values() if one.formed is not None}
            assert len(self.decided | formed) <= 1

    def run_until_whole(self) -> None:
        self.rudeness = 0.0
        for _ in range(200):
            if all(one.formed is not None for one in self.nodes.values()):
                self.rudeness = 0.1
                return
            self.run(50)
        pytest.fail("no cluster came about")


@pytest.mark.parametrize("seed", range(200))
def test_never_two_clusters_of_one_list(seed: int) -> None:
    model = Model(seed)
    model.forgetfulness, model.rudeness = model.random.choice([(0.0, 0.1), (0.95, 0.3)])
    model.run(600)
    assert model.nodes[1].promised != NO_BALLOT or model.nodes[1].formed, "nothing has happened"


@pytest.mark.parametrize("seed", range(300))
def test_attempts_that_know_nothing_of_each_other_decide_the_same(seed: int) -> None:
    """Several are always under way, none is given up, and nobody learns of a decision."""
    random = Random(seed)
    numbers = tuple(range(1, random.choice([3, 4, 5]) + 1))
    nodes = {number: node(number, *numbers) for number in numbers}
    ballots = {Ballot(random.randint(1, 4), one, b"disk%d" % one) for one in numbers * 2}
    attempts = [Attempt(nodes[one.node], one, ()) for one in sorted(ballots)]
    decided = set()
    for _ in range(400):
        attempt, number = random.choice(attempts), random.choice(numbers)
        nodes[number] = answer_question(nodes[number], attempt.question)
        if random.random() < 0.7:
            attempt.hear(nodes[number])
        if attempt.may_propose(is_late=True) and random.random() < 0.3:
            # Else all would say the same at once.
            attempt._me = msgspec.structs.replace(attempt._me, offered_id=str(attempt.ballot))
            attempt.propose()
        if attempt.decided is not None:
            decided.add(attempt.decided)
        assert len(decided) <= 1


@pytest.mark.parametrize("seed", range(200))
def test_a_minority_of_empty_disks_cannot_found_again_when_all_have_joined(seed: int) -> None:
    model = Model(seed)
    model.run_until_whole()
    for _ in range(3):
        lost = model.random.sample(model.numbers, (len(model.numbers) - 1) // 2)
        for number in lost:
            model.lose_disk(number, joins_only=False)
        model.run(300)
        model.run_until_whole()


@pytest.mark.parametrize("seed", range(200))
def test_disks_that_are_told_to_join_found_nothing_whenever_they_come(seed: int) -> None:
    model = Model(seed)
    for _ in range(20):
        model.run(40)
        model.lose_disk(model.random.choice(model.numbers), joins_only=True)


def test_most_disks_lost_at_once_look_like_a_new_list() -> None:
    """Nobody can tell; this is what the manual warns of, and why nodes can be told to join."""
    formed = Formed("old", ())
    kept = msgspec.structs.replace(node(1), formed=formed)
    assert isinstance(next_step(node(2), {3: node(3)}), Stand)
    assert next_step(node(2), {1: kept, 3: node(3)}) == Join(formed)


def test_a_foreign_cluster_is_refused() -> None:
    one = msgspec.structs.replace(node(1), formed=Formed("a", ()))
    two = msgspec.structs.replace(node(2), formed=Formed("b", ()))
    with pytest.raises(ForeignCluster):
        next_step(node(3), {1: one, 2: two})
