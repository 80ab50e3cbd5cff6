"""Arguments and answers of operations, as another node gets them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import msgspec
import pytest

from goqueue.broker.gate import levels
from goqueue.broker.gate.areas.groups import GroupsArea
from goqueue.broker.gate.portable import Portable
from goqueue.broker.queues.groups import QueueGroup
from goqueue.broker.streams.progress import PartitionLag
from goqueue.delivery import QueueSettings
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import GoQueueError, UnknownSchedule, UpgradeInProgress
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session
from goqueue.model.support import LEVEL_MAX, LEVEL_MIN


class Shop:
    async def buy(
        self,
        session: Session,
        *,
        item: bytes,
        place: TopicPartition,
        count: int = 1,
        cancellation: Cancellation,
    ) -> list[GoQueueError | None]:
        raise AssertionError

    def look(self, session: Session) -> Promise[dict[str, int] | None]:
        raise AssertionError


def test_arguments_arrive_as_they_were_given() -> None:
    portable = Portable(Shop.buy)
    given = {"place": TopicPartition("t", 3), "item": b"\x00\xff", "cancellation": Cancellation()}
    sent = portable.encode_arguments(given)
    assert portable.decode_arguments(memoryview(sent)) == {
        "item": b"\x00\xff",
        "place": TopicPartition("t", 3),
        "count": 1,
    }
    assert portable.waits


def test_an_error_in_an_answer_arrives_as_itself() -> None:
    portable = Portable(Shop.buy)
    sent = portable.encode_answer([None, UnknownSchedule("x")])
    nothing, error = portable.decode_answer(memoryview(sent))
    assert nothing is None
    assert isinstance(error, UnknownSchedule)
    assert str(error) == str(UnknownSchedule("x"))


@pytest.mark.parametrize("answer", [None, {"a": 1}])
def test_the_answer_of_a_promise_is_what_it_resolves_to(answer: Any) -> None:
    portable = Portable(Shop.look)
    assert portable.decode_answer(memoryview(portable.encode_answer(answer))) == answer
    assert not portable.waits


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(TypeError, match="Shop cannot be sent"):
        Portable(Shop.look).encode_answer(Shop())


SHORT_OF_MEMORY = """
import resource
from pathlib import Path
from goqueue.broker.gate.portable import Portable

class Sample:
    async def echo(self, *, values: list[str]) -> list[str]: ...

portable = Portable(Sample.echo)
values = ["x" * 1000] * 50_000
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (10 << 20), used + (10 << 20)))
for encode in (portable.encode_answer, lambda given: portable.encode_arguments({"values": given})):
    try:
        encode(values)
    except MemoryError:
        print("refused")
    print(len(encode(["x"])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the bound on memory is Linux's")
def test_what_memory_does_not_suffice_for_is_refused_and_the_process_goes_on() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "refused\n3\nrefused\n4\n"), ended.stderr[-500:]


# Between releases


class Lot(NamedTuple):
    """A type that has grown."""

    item: str
    weight: int = 0

    def at_level(self, level: int) -> Any:
        return tuple(self)[:1] if level < LEVEL_MAX else tuple(self)


class OldStall:
    async def sell(self, session: Session, *, lot: str, count: int = 1) -> list[str]:
        raise AssertionError


class Stall:
    async def sell(
        self, session: Session, *, lot: str, count: int = 1, price: int = 0, note: str | None = None
    ) -> list[Lot]:
        raise AssertionError


def test_arguments_at_their_defaults_are_left_out() -> None:
    portable = Portable(Stall.sell)
    for count in (1, 2):
        sent = portable.encode_arguments({"lot": "x", "count": count})
        assert len(msgspec.msgpack.decode(sent)) == count
        arrived = portable.decode_arguments(memoryview(sent))
        assert arrived == {"lot": "x", "count": count, "price": 0, "note": None}


def test_arguments_of_an_earlier_release_arrive_with_the_new_ones_at_their_defaults() -> None:
    sent = msgspec.msgpack.encode(["x", 3])
    arrived = Portable(Stall.sell).decode_arguments(memoryview(sent))
    assert arrived == {"lot": "x", "count": 3, "price": 0, "note": None}


@pytest.mark.parametrize("sent", [b"", b"\x90", b"\x81\x01\x02", b"\xdc", b"\xc1"])
def test_arguments_that_are_no_list_of_them_are_refused(sent: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        Portable(Stall.sell).decode_arguments(memoryview(sent))


def test_an_argument_of_a_later_release_is_refused_for_now() -> None:
    sent = Portable(Stall.sell).encode_arguments({"lot": "x", "price": 9})
    with pytest.raises(UpgradeInProgress, match="later release"):
        Portable(OldStall.sell).decode_arguments(memoryview(sent))


def test_an_older_node_gets_every_argument_it_knows_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    since = {("stall.sell", "price"): LEVEL_MAX, ("stall.sell", "note"): LEVEL_MAX}
    monkeypatch.setattr(levels, "ARGUMENTS_SINCE", since)
    portable = Portable(Stall.sell, "stall.sell")
    sent = portable.encode_arguments({"lot": "x"}, LEVEL_MIN)
    assert msgspec.msgpack.decode(sent) == ["x", 1]
    with pytest.raises(UpgradeInProgress, match=r"price of stall.sell needs feature level"):
        portable.encode_arguments({"lot": "x", "price": 9}, LEVEL_MIN)


def test_an_older_node_gets_answers_as_it_knows_them() -> None:
    portable = Portable(Stall.sell)
    answer = [Lot("x", 5)]
    assert msgspec.msgpack.decode(portable.encode_answer(answer, LEVEL_MIN)) == [["x"]]
    old = portable.encode_answer(answer, LEVEL_MIN)
    assert portable.decode_answer(memoryview(old)) == [Lot("x")]
    assert portable.decode_answer(memoryview(portable.encode_answer(answer))) == answer


def test_the_answers_of_groups_are_what_the_release_before_expects() -> None:
    lag = PartitionLag("t", 0, 1, 5, 4, age_ms=9)
    group = QueueGroup("g", QueueSettings(visibility_ms=5), ["t"])
    sent = Portable(GroupsArea.lag.__wrapped__).encode_answer([lag], LEVEL_MIN)  # type: ignore[attr-defined]
    assert msgspec.msgpack.decode(sent) == [["t", 0, 1, 5, 4]]
    sent = Portable(GroupsArea.put_queue.__wrapped__).encode_answer(group, LEVEL_MIN)  # type: ignore[attr-defined]
    settings = msgspec.msgpack.decode(sent)[1]
    assert settings["visibility_ms"] == 5
    assert "error_headers" not in settings
    assert "delay_ms" in settings


@pytest.mark.parametrize(
    ("changes", "is_known"),
    [
        ({"visibility_ms": 5, "start": "latest"}, True),
        ({"nonsense": 1}, True),
        ({"error_headers": True}, False),
        ({"error_headers": None}, False),
        ({"start": "by_duration:PT1H"}, False),
    ],
)
def test_an_older_owner_is_not_asked_to_change_settings_that_it_does_not_know(
    changes: dict[str, Any], is_known: bool
) -> None:
    """It would refuse them for good, and they are valid once it is upgraded."""
    portable = Portable(GroupsArea.change_queue.__wrapped__, "groups.change_queue")  # type: ignore[attr-defined]
    arguments = {"group": "workers", "changes": changes}
    portable.encode_arguments(arguments)
    if is_known:
        portable.encode_arguments(arguments, LEVEL_MIN)
        return
    with pytest.raises(UpgradeInProgress, match=r"changes of groups\.change_queue"):
        portable.encode_arguments(arguments, LEVEL_MIN)
