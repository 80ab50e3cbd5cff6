"""Calls that lease messages, now or when some arrive: what they want, and how they are answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from goqueue.broker.queues.records import Received
from goqueue.delivery import Lease
from goqueue.loop.clock import Handle
from goqueue.loop.promise import Promise

if TYPE_CHECKING:
    from goqueue.broker.queues.host import HostedQueue


@dataclass(slots=True)
class ReceiveLimits:
    """Limits of receive calls: how many wait, over all queues of the node, and their size."""

    waiting_max: int
    bytes_max: int  # of one response
    waiting: int = 0


class Delivered(Protocol):
    """What a call has leased; it is false if that is nothing."""

    def __len__(self) -> int: ...

    @property
    def leases(self) -> Collection[Lease]: ...


D = TypeVar("D", bound=Delivered)


def stay() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class ReceiveCall(ABC, Generic[D]):
    """A call that waits for messages of one queue."""

    consumer: str
    count_max: int
    visibility_ms: int
    promise: Promise[D] = field(default_factory=Promise)
    timer: Handle | None = None
    leave: Callable[[], None] = stay
    give_back: Callable[[], None] = stay  # returns leased messages whose response is not sent yet

    @property
    @abstractmethod
    def partitions(self) -> Collection[int] | None:
        """The partitions whose messages it takes; None if it takes those of any."""

    @abstractmethod
    def collect(self, queue: HostedQueue) -> D:
        """Lease messages, if there are any."""

    @abstractmethod
    def nothing(self) -> D:
        """Return the answer without messages."""

    def cancel(self) -> None:
        """Cancel the call, because its client is gone."""
        if not self.promise.is_done:
            self.answer_nothing()
            give_back, self.give_back = self.give_back, stay
            give_back()

    def answer_nothing(self) -> None:
        self.answer(self.nothing())

    def answer(self, messages: D) -> None:
        self.stop_waiting()
        self.promise.resolve(messages)

    def refuse(self, error: Exception) -> None:
        self.stop_waiting()
        self.promise.reject(error)

    def stop_waiting(self) -> None:
        """Leave the queue and break reference cycles, which would need the garbage collector."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
        leave, self.leave = self.leave, stay
        leave()


@dataclass(slots=True, eq=False)
class Receiver(ReceiveCall[Received]):
    """A call that is answered with messages of any partition."""

    topic: str = ""

    @property
    def partitions(self) -> None:
        return None

    def collect(self, queue: HostedQueue) -> Received:
        return queue.collect(self)

    def nothing(self) -> Received:
        return Received(self.topic)
