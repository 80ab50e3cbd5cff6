"""Dead letters on a node: listed, counted, and brought back by jobs."""

from __future__ import annotations

import pytest

from goqueue.broker.redrives import dead_letters
from goqueue.broker.redrives.dead_letters import LetterPage
from goqueue.broker.redrives.jobs import JOBS_KEPT_MAX, RETRY_MS
from goqueue.delivery.redrive import LetterFilter, Redrive, RedriveOrder
from goqueue.loop.promise import promised
from goqueue.model.batch import Record
from goqueue.model.dead_letters import Origin, read_origin, write_origin
from goqueue.model.errors import (
    GoQueueError,
    RedriveActive,
    RedriveEnded,
    UnknownRedrive,
    UnknownTopic,
)
from goqueue.model.session import Session, pack_session, unpack_session
from tests.unit.broker.node import Node

TOPIC = "orders"
DEAD = "orders.dlq"


class Morgue(Node):
    """A node on which messages die."""

    def kill_messages(self, *values: str, reason: str = "poison", topic: str = TOPIC) -> None:
        """Publish messages and have a consumer reject them."""
        if self.broker.topics.find(topic) is None:
            self.create(topic)
        self.produce(topic, list(values))
        receiver = self.broker.queues.receive("shop", topic, consumer="anna", messages_max=1000)
        messages = self.wait(receiver.promise)
        assert len(messages) == len(values)
        receipts = [one.delivery.receipt for one in messages]
        self.wait(self.broker.queues.reject("shop", receipts, reason=reason))
        self.run_until(lambda: self.broker.topics.find(topic + ".dlq") is not None)

    def restart(self) -> None:
        self.stop()
        self.start()

    def letters(self, filter: LetterFilter | None = None, count_max: int = 1000) -> list[str]:
        page = self.page(filter, count_max)
        return [_text(letter.record) for letter in page.letters]

    def page(
        self,
        filter: LetterFilter | None = None,
        count_max: int = 1000,
        positions: list[int] | None = None,
    ) -> LetterPage:
        page = self.broker.dead_letters.page(
            TOPIC, filter=filter or LetterFilter(), count_max=count_max, positions=positions
        )
        return self.wait(promised(page))

    def dead_count(self, topic: str = TOPIC) -> int:
        return self.wait(promised(self.broker.dead_letters.count(topic)))

    def redrive(self, order: RedriveOrder | None = None) -> Redrive:
        return self.wait(self.broker.redrives.start(TOPIC, order or RedriveOrder()))

    def finish(self, job: Redrive) -> Redrive:
        """Let a job come to its end, also over a restart."""
        redrives = self.broker.redrives
        self.run_until(lambda: redrives.get(TOPIC, job.id).is_ended)
        return redrives.get(TOPIC, job.id)

    def live(self) -> list[str]:
        return [_text(record) for record in self.consume(TOPIC)]


def _text(record: Record) -> str:
    return (record.value or b"").decode()


@pytest.fixture
def morgue() -> Morgue:
    node = Morgue()
    node.kill_messages("a", "b", "c")
    return node


def test_the_dead_are_listed_with_what_is_known_of_their_death(morgue: Morgue) -> None:
    letters = morgue.page().letters
    assert [_text(letter.record) for letter in letters] == ["a", "b", "c"]
    origin = letters[1].origin
    assert origin is not None
    assert origin[:6] == (TOPIC, 0, 1, "shop", "poison", 1)
    assert morgue.dead_count() == 3


def test_pages_follow_one_another_without_gap_or_repeat(morgue: Morgue) -> None:
    morgue.kill_messages("d", "e", reason="late")
    seen: list[str] = []
    positions: list[int] | None = None
    for _ in range(4):
        page = morgue.page(count_max=2, positions=positions)
        seen += [_text(letter.record) for letter in page.letters]
        positions = page.positions
    assert seen == ["a", "b", "c", "d", "e"]
    assert morgue.letters(LetterFilter(reason="late"), count_max=1) == ["d"]


def test_matches_are_counted_among_the_first_letters(
    morgue: Morgue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "RUN_LETTERS_MAX", 2)
    morgue.kill_messages("d", "e", reason="late")

    def count(**filter: str) -> tuple[int, bool]:
        found = morgue.broker.dead_letters.matches(TOPIC, LetterFilter(**filter))  # type: ignore[arg-type]
        return tuple(morgue.wait(promised(found)))

    assert count() == (5, True)
    assert count(reason="late") == (2, True)
    monkeypatch.setattr(dead_letters, "MATCHES_LETTERS_MAX", 3)
    assert count(reason="late") == (1, False)


def test_without_dead_letters_there_is_an_empty_page_and_nothing_to_redrive() -> None:
    node = Morgue()
    node.create(TOPIC)
    assert node.page() == ([], [], [], True)
    assert node.dead_count() == 0
    with pytest.raises(UnknownTopic):
        node.redrive()
    with pytest.raises(UnknownTopic):
        node.dead_count("no-such-topic")


def test_letters_go_back_as_they_were_and_are_dead_no_longer(morgue: Morgue) -> None:
    job = morgue.finish(morgue.redrive())
    assert (job.state, job.moved, job.passed_over, job.failed) == ("done", 3, 0, 0)
    assert morgue.live() == ["a", "b", "c", "a", "b", "c"]
    assert morgue.letters() == []
    assert morgue.dead_count() == 0
    assert all(read_origin(record.headers) is None for record in morgue.consume(TOPIC))
    messages = morgue.wait(
        morgue.broker.queues.receive("shop", TOPIC, consumer="anna", messages_max=10).promise
    )
    assert [one.delivery.attempt for one in messages] == [1, 1, 1], "they begin anew"
    again = morgue.finish(morgue.redrive())
    assert (again.state, again.moved) == ("done", 0)


def test_only_what_the_order_asks_for_goes_back(morgue: Morgue) -> None:
    morgue.kill_messages("d", "e", reason="late")
    job = morgue.finish(morgue.redrive(RedriveOrder(filter=LetterFilter(reason="late"))))
    assert (job.moved, job.passed_over) == (2, 3)
    assert morgue.letters() == ["a", "b", "c"]
    job = morgue.finish(morgue.redrive(RedriveOrder(letters=[(0, 1)])))
    assert (job.moved, morgue.letters()) == (1, ["a", "c"])
    job = morgue.finish(morgue.redrive(RedriveOrder(count_max=1)))
    assert (job.moved, morgue.letters()) == (1, ["c"])


def test_a_copy_stays_dead_if_it_is_to_be_kept(morgue: Morgue) -> None:
    job = morgue.finish(morgue.redrive(RedriveOrder(keep_copy=True)))
    assert (job.moved, morgue.letters()) == (3, ["a", "b", "c"])
    assert len(morgue.live()) == 6
    assert morgue.finish(morgue.redrive(RedriveOrder(keep_copy=True))).moved == 3


def test_letters_can_go_elsewhere(morgue: Morgue) -> None:
    morgue.create("elsewhere")
    morgue.finish(morgue.redrive(RedriveOrder(target_topic="elsewhere")))
    assert [_text(record) for record in morgue.consume("elsewhere")] == ["a", "b", "c"]
    with pytest.raises(UnknownTopic):
        morgue.redrive(RedriveOrder(target_topic="nowhere"))


def test_letters_of_a_topic_that_is_gone_stay_where_they_are(morgue: Morgue) -> None:
    morgue.wait(morgue.broker.topics.delete(TOPIC))
    job = morgue.finish(morgue.redrive())
    assert (job.state, job.moved, job.failed) == ("done", 0, 3)
    assert "no topic 'orders'" in job.problem
    assert morgue.letters() == ["a", "b", "c"]


def test_a_preview_moves_nothing(morgue: Morgue) -> None:
    order = RedriveOrder(filter=LetterFilter(reason="poison"), count_max=2)
    preview = morgue.wait(promised(morgue.broker.redrives.preview(TOPIC, order)))
    assert (preview.matching, preview.is_complete) == (2, True)
    assert [_text(letter.record) for letter in preview.letters] == ["a", "b"]
    assert morgue.letters() == ["a", "b", "c"]
    assert morgue.broker.redrives.jobs(TOPIC) == []


def test_a_job_keeps_to_its_rate(morgue: Morgue) -> None:
    morgue.kill_messages(*(str(number) for number in range(97)))
    began_ms = morgue.clock.now_ms()
    job = morgue.finish(morgue.redrive(RedriveOrder(rate_per_s=20)))
    assert job.moved == 100
    assert 4_000 <= morgue.clock.now_ms() - began_ms <= 6_500


def test_a_job_can_be_paused_resumed_and_cancelled_and_nothing_is_lost(morgue: Morgue) -> None:
    morgue.kill_messages(*(str(number) for number in range(97)))
    redrives = morgue.broker.redrives
    job = morgue.redrive(RedriveOrder(rate_per_s=20))
    morgue.run_for(1_000)
    morgue.wait(redrives.pause(TOPIC, job.id))
    morgue.run_for(1_000)
    moved = job.moved
    assert 0 < moved < 100
    morgue.run_for(10_000)
    assert job.moved == moved
    morgue.wait(redrives.resume(TOPIC, job.id))
    morgue.run_for(1_000)
    assert moved < job.moved < 100
    morgue.wait(redrives.cancel(TOPIC, job.id))
    morgue.run_for(10_000)
    assert job.state == "cancelled"
    assert sorted(morgue.letters() + morgue.live()[100:]) == sorted(morgue.live()[:100])
    assert [event.what for event in job.history] == [
        "created",
        "paused",
        "running",
        "cancelled",
    ]
    with pytest.raises(RedriveEnded):
        redrives.resume(TOPIC, job.id)


def test_one_job_at_a_time_works_on_a_topic(morgue: Morgue) -> None:
    job = morgue.redrive(RedriveOrder(rate_per_s=1))
    with pytest.raises(RedriveActive):
        morgue.redrive()
    morgue.wait(morgue.broker.redrives.cancel(TOPIC, job.id))
    assert morgue.finish(morgue.redrive()).state == "done"
    with pytest.raises(UnknownRedrive):
        morgue.broker.redrives.get(TOPIC, "no-such-job")


def test_a_job_goes_on_after_a_restart_and_a_paused_one_waits(morgue: Morgue) -> None:
    morgue.kill_messages(*(str(number) for number in range(97)))
    job = morgue.redrive(RedriveOrder(rate_per_s=50))
    morgue.run_for(500)
    morgue.restart_after_crash()
    job = morgue.broker.redrives.get(TOPIC, job.id)
    assert job.state == "running"
    assert 0 < job.moved < 100
    morgue.wait(morgue.broker.redrives.pause(TOPIC, job.id))
    morgue.restart()
    job = morgue.broker.redrives.get(TOPIC, job.id)
    assert job.state == "paused"
    morgue.wait(morgue.broker.redrives.resume(TOPIC, job.id))
    job = morgue.finish(job)
    assert (job.state, job.moved) == ("done", 100)
    assert sorted(morgue.live()[100:]) == sorted(morgue.live()[:100])


def test_a_change_that_cannot_be_stored_is_refused_and_the_job_goes_on(morgue: Morgue) -> None:
    job = morgue.redrive(RedriveOrder(rate_per_s=1))
    morgue.disk.fill_after(0)
    with pytest.raises(GoQueueError, match=r"room|full"):
        morgue.wait(morgue.broker.redrives.pause(TOPIC, job.id))
    morgue.disk.make_room()
    assert morgue.finish(job).moved == 3
    assert morgue.live() == ["a", "b", "c", "a", "b", "c"]


def test_a_change_of_a_paused_job_can_be_repeated_after_it_could_not_be_stored(
    morgue: Morgue,
) -> None:
    job = morgue.redrive(RedriveOrder(rate_per_s=1))
    morgue.wait(morgue.broker.redrives.pause(TOPIC, job.id))
    morgue.run_for(2_000)
    morgue.disk.fill_after(0)
    with pytest.raises(GoQueueError, match=r"room|full"):
        morgue.wait(morgue.broker.redrives.cancel(TOPIC, job.id))
    morgue.disk.make_room()
    morgue.run_for(RETRY_MS + 100)
    assert morgue.broker.redrives.get(TOPIC, job.id).state == "paused"
    morgue.wait(morgue.broker.redrives.resume(TOPIC, job.id))
    assert morgue.finish(job).moved == 3


def test_a_full_disk_only_makes_a_job_wait(morgue: Morgue) -> None:
    morgue.disk.fill_after(0)
    morgue.broker.upkeep.check_space()
    job_order = RedriveOrder()
    with pytest.raises(Exception, match=r"room|full"):
        morgue.redrive(job_order)
    morgue.disk.make_room()
    morgue.broker.upkeep.check_space()
    job = morgue.redrive(RedriveOrder(rate_per_s=1))
    morgue.broker.upkeep.is_full = True
    morgue.run_for(3 * RETRY_MS)
    moved = job.moved
    morgue.broker.upkeep.check_space()
    assert morgue.finish(job).moved == 3 > moved


def test_a_job_whose_letters_are_deleted_under_it_fails(morgue: Morgue) -> None:
    job = morgue.redrive(RedriveOrder(rate_per_s=1))
    morgue.wait(morgue.broker.topics.delete(DEAD))
    morgue.run_for(5_000)
    assert job.state == "failed"
    assert DEAD in job.problem


def test_the_oldest_of_many_ended_jobs_are_forgotten(morgue: Morgue) -> None:
    first = morgue.finish(morgue.redrive())
    for _ in range(JOBS_KEPT_MAX + 1):
        morgue.finish(morgue.redrive())
    assert len(morgue.broker.redrives.jobs(TOPIC)) <= JOBS_KEPT_MAX + 1
    morgue.restart()
    with pytest.raises(UnknownRedrive):
        morgue.broker.redrives.get(TOPIC, first.id)


# Who started a job


def test_letters_go_only_where_the_one_who_started_the_job_may_write(morgue: Morgue) -> None:
    """A dead-letter topic may have letters of several topics, and origins can be forged."""
    dead = morgue.dead_count()
    morgue.create("vault")
    origin = Origin("vault", 0, 0, "shop", "poison", 1, 1)
    forged = Record(None, b"forged", write_origin(origin))
    morgue.wait(morgue.broker.publish(DEAD, [forged]))
    session = pack_session(Session("test", principal="User:alice"))
    asked: list[tuple[bytes, str]] = []

    def may_write(started_by: bytes, topic: str) -> bool:
        asked.append((started_by, topic))
        return topic == TOPIC

    morgue.broker.redrives.may_write = may_write
    started = morgue.broker.redrives.start(TOPIC, RedriveOrder(), started_by=session)
    job = morgue.finish(morgue.wait(started))
    assert (job.moved, job.failed) == (dead, 1)
    assert "may not write" in job.problem
    assert "vault" not in job.problem
    assert morgue.values("vault") == []
    assert set(asked) == {(session, TOPIC), (session, "vault")}


def test_the_rights_of_who_started_a_job_hold_after_a_restart(morgue: Morgue) -> None:
    morgue.kill_messages("a", "b", "c")
    session = Session("test", principal="User:alice")
    start = morgue.broker.redrives.start(
        TOPIC, RedriveOrder(rate_per_s=1), started_by=pack_session(session)
    )
    job = morgue.wait(start)
    morgue.restart()
    assert unpack_session(morgue.broker.redrives.get(TOPIC, job.id).started_by) == session
