"""Where a reader is, and how it finds the end."""

from __future__ import annotations

import pytest

from goqueue.client.http.messages import Message
from goqueue.client.http.reading import PAGES_PER_LOOK, Progress
from goqueue.client.http.requests.messages import Page
from goqueue.model.errors import CorruptBatch
from goqueue.wire.http.bodies.messages import Damage
from goqueue.wire.http.bodies.topics import Partition

DAMAGE = Damage(partition=0, offset=5, next_offset=8, detail="The checksum is wrong.")


def message(partition: int, offset: int) -> Message:
    return Message(
        id="", topic="t", partition=partition, offset=offset, timestamp_ms=0, key=None, value=b""
    )


def page(cursor: str, *places: tuple[int, int], damaged: tuple[Damage, ...] = ()) -> Page:
    return Page(messages=tuple(message(*one) for one in places), cursor=cursor, damaged=damaged)


def take_all(progress: Progress) -> list[tuple[int, int]]:
    taken = []
    while (one := progress.take()) is not None:
        taken.append((one.partition, one.offset))
    return taken


def test_pages_follow_one_another_until_one_brings_nothing() -> None:
    progress = Progress("t", from_="2h")
    assert progress.next_request(0).query == {
        "from": "2h",
        "limit": "500",
        "wait_ms": "0",
        "encoding": "utf8",
    }
    progress.arrived(page("0:2,1:1", (0, 0), (0, 1), (1, 0)))
    assert take_all(progress) == [(0, 0), (0, 1), (1, 0)]
    assert not progress.is_at_end
    assert progress.next_request(0).query["cursor"] == "0:2,1:1"
    progress.arrived(page("0:2,1:1"))
    assert progress.is_at_end


def test_a_page_that_only_moves_on_is_not_the_end() -> None:
    progress = Progress("t", cursor="0:0")
    progress.arrived(page("0:900"))  # compaction has left nothing there
    assert not progress.is_at_end
    progress.arrived(page("0:900"))
    assert progress.is_at_end


def test_an_empty_topic_ends_at_once() -> None:
    progress = Progress("t")
    progress.arrived(page("0:0"))
    assert progress.is_at_end


def test_who_follows_has_no_end_and_waits() -> None:
    progress = Progress("t", from_="latest", is_followed=True)
    progress.arrived(page("0:7"))
    assert not progress.is_at_end
    request = progress.next_request(20)
    assert (request.wait_ms, request.query["wait_ms"]) == (20_000, "20000")
    assert progress.cursor == "0:7"


def test_the_cursor_is_behind_the_last_message_handed_out() -> None:
    progress = Progress("t", from_="earliest")
    progress.arrived(page("0:3,1:6,2:9", (0, 1), (1, 5), (0, 2)))
    assert progress.cursor == ""
    seen = []
    while (one := progress.take()) is not None:
        seen.append((one.offset, progress.cursor))
    assert seen == [(1, "0:2,1:5,2:9"), (5, "0:2,1:6,2:9"), (2, "0:3,1:6,2:9")]
    progress.arrived(page("0:5,1:6,2:9", (0, 3), (0, 4)))
    progress.take()
    assert progress.cursor == "0:4,1:6,2:9"


def test_a_count_ends_the_reading() -> None:
    progress = Progress("t", count_max=2)
    progress.arrived(page("0:3", (0, 0), (0, 1), (0, 2)))
    assert take_all(progress) == [(0, 0), (0, 1)]
    assert progress.is_at_end


def test_damage_is_raised_once_and_then_passed() -> None:
    progress = Progress("t")
    progress.arrived(page("0:9", (0, 8), damaged=(DAMAGE,)))
    with pytest.raises(CorruptBatch, match="from offset 5 to 7 cannot be read"):
        progress.take()
    assert take_all(progress) == [(0, 8)]


def test_who_asks_to_be_told_of_damage_is_told() -> None:
    told: list[Damage] = []
    progress = Progress("t", on_damage=told.append)
    progress.arrived(page("0:9", (0, 8), damaged=(DAMAGE,)))
    assert take_all(progress) == [(0, 8)]
    assert told == [DAMAGE]


def grown(*starts: int) -> list[Partition]:
    return [
        Partition(
            partition=number,
            leader=1,
            leader_epoch=0,
            replicas=[1],
            in_sync=[1],
            start_offset=start,
            end_offset=start,
            high_watermark=start,
            bytes=0,
        )
        for number, start in enumerate(starts)
    ]


def test_who_follows_a_topic_reads_partitions_that_are_added() -> None:
    progress = Progress("t", is_followed=True, from_="latest")
    assert not progress.is_look_due()
    progress.arrived(page("0:7,1:3"))
    assert progress.is_look_due()
    progress.looked(grown(2, 3, 5))
    assert not progress.is_look_due()
    assert progress.next_request(0).query["cursor"] == "0:7,1:3,2:5"
    progress.arrived(page("0:8,1:3,2:6", (0, 7), (2, 5)))
    progress.take()
    assert progress.cursor == "0:8,1:3,2:5"


def test_a_busy_follower_looks_now_and_then() -> None:
    progress = Progress("t", is_followed=True, cursor="0:0")
    for number in range(PAGES_PER_LOOK):
        assert not progress.is_look_due()
        progress.arrived(page(f"0:{number + 1}", (0, number)))
        take_all(progress)
    assert progress.is_look_due()


@pytest.mark.parametrize(
    "progress",
    [
        Progress("t", is_followed=True, partition=1, from_="latest"),
        Progress("t", is_followed=True, cursor="1:5"),
        Progress("t", cursor="0:5"),
    ],
)
def test_who_reads_some_partitions_or_to_the_end_gets_no_others(progress: Progress) -> None:
    progress.arrived(page(progress.cursor or "1:0"))
    assert not progress.is_look_due()
