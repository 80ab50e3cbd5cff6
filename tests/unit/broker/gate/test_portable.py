"""Arguments and answers of operations, as another node gets them."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.broker.gate.forwarding import Portable
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import GoQueueError, UnknownSchedule
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session


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
