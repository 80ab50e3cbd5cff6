"""The instances of clients that report metrics, and when each may send what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from zlib import crc32

from goqueue.metrics.metric import Metric

INSTANCES_MAX = 20_000  # then the one that was silent for the longest time is forgotten
# An instance that has been silent for so many intervals is forgotten.
INTERVALS_KEPT = 3
# Share of the interval after which the next push is accepted: networks delay the one more than the
# other.
EARLIEST = 0.9
ID_BYTES = 16
NO_ID = bytes(ID_BYTES)


class Verdict(StrEnum):
    """What becomes of a request of a client."""

    ACCEPTED = "accepted"
    TOO_EARLY = "too_early"
    UNKNOWN_SUBSCRIPTION = "unknown_subscription"  # the client has to ask again what is wanted
    UNSUPPORTED_COMPRESSION = "unsupported_compression"
    TOO_LARGE = "too_large"
    ENDED = "ended"  # the client has said before that a push was its last
    INVALID = "invalid"


_MAY_ASK_AT_ONCE = (Verdict.UNKNOWN_SUBSCRIPTION, Verdict.UNSUPPORTED_COMPRESSION)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What all clients are asked to report."""

    interval_ms: int
    bytes_max: int  # of one push, as sent
    prefixes: tuple[str, ...]  # of names of metrics

    @property
    def id(self) -> int:
        """A number that changes with the subscription, so that clients notice."""
        text = f"{self.interval_ms} {self.bytes_max} {' '.join(self.prefixes)}"
        return crc32(text.encode()) >> 1

    def wants(self, name: str) -> bool:
        return name.startswith(self.prefixes)


@dataclass(slots=True)
class Instance:
    """One running client."""

    software: str
    asked_ms: int | None = None
    pushed_ms: int | None = None
    may_push: bool = False  # at once, because it has asked since its last push
    has_ended: bool = False
    verdict: Verdict = Verdict.ACCEPTED  # of its last request
    values: Mapping[Metric, float] = field(default_factory=dict)  # its last report

    @property
    def seen_ms(self) -> int:
        return max(self.asked_ms or 0, self.pushed_ms or 0)


class Instances:
    """Decides which requests of clients are accepted."""

    def __init__(self, subscription: Subscription, random: Random) -> None:
        self.subscription = subscription
        self._random = random
        self._known: dict[bytes, Instance] = {}  # those seen last come last

    def __len__(self) -> int:
        return len(self._known)

    def ask(self, instance_id: bytes, software: str, now_ms: int) -> tuple[bytes, Verdict]:
        """A client asks what is wanted; return its id, a new one if it has none yet."""
        if instance_id == NO_ID:
            instance_id = self._random.randbytes(ID_BYTES)
        instance = self._touch(instance_id, software, now_ms)
        is_early = not self._is_due(instance.seen_ms, now_ms) and instance.asked_ms is not None
        if is_early and instance.verdict not in _MAY_ASK_AT_ONCE:
            instance.verdict = Verdict.TOO_EARLY
        else:
            instance.verdict = Verdict.ACCEPTED
            instance.asked_ms = now_ms
            instance.may_push = True
        return instance_id, instance.verdict

    def admit(
        self,
        instance_id: bytes,
        software: str,
        *,
        subscription_id: int,
        size: int,
        is_last: bool,
        now_ms: int,
    ) -> Verdict:
        """Decide about a push before it is read."""
        instance = self._touch(instance_id, software, now_ms)
        verdict = self._judge(instance, subscription_id, size, is_last, now_ms)
        if verdict is not Verdict.TOO_EARLY:
            instance.pushed_ms = now_ms
            instance.may_push = False
        if verdict is Verdict.ACCEPTED and is_last:
            instance.has_ended = True
        instance.verdict = verdict
        return verdict

    def note(self, instance_id: bytes, verdict: Verdict, values: Mapping[Metric, float]) -> None:
        """Keep what an admitted push contained, or why it could not be read."""
        instance = self._known.get(instance_id)
        if instance is not None:
            instance.verdict = verdict
            instance.values = {} if instance.has_ended else values

    def alive(self, now_ms: int) -> Sequence[Instance]:
        """Return those that report; forget those that have ended or are silent."""
        self._forget(now_ms)
        return [
            one for one in self._known.values() if one.pushed_ms is not None and not one.has_ended
        ]

    def _judge(
        self, instance: Instance, subscription_id: int, size: int, is_last: bool, now_ms: int
    ) -> Verdict:
        if instance.has_ended:
            return Verdict.ENDED
        is_due = instance.pushed_ms is None or self._is_due(instance.pushed_ms, now_ms)
        if not (is_last or instance.may_push or is_due):
            return Verdict.TOO_EARLY
        if subscription_id != self.subscription.id:
            return Verdict.UNKNOWN_SUBSCRIPTION
        if size > self.subscription.bytes_max:
            return Verdict.TOO_LARGE
        return Verdict.ACCEPTED

    def _is_due(self, last_ms: int, now_ms: int) -> bool:
        return now_ms - last_ms >= EARLIEST * self.subscription.interval_ms

    def _touch(self, instance_id: bytes, software: str, now_ms: int) -> Instance:
        """Return the instance with an id, and move it to the end.

        Clients keep their id when they turn to another node, which then sees it first in a push.
        """
        instance = self._known.pop(instance_id, None)
        if instance is None:
            self._forget(now_ms)
            if len(self._known) >= INSTANCES_MAX:
                del self._known[next(iter(self._known))]
            instance = Instance(software)
        self._known[instance_id] = instance
        return instance

    def _forget(self, now_ms: int) -> None:
        for instance_id in list(self._silent(now_ms)):
            del self._known[instance_id]

    def _silent(self, now_ms: int) -> Iterator[bytes]:
        """The instances that are silent: they come first."""
        kept_ms = INTERVALS_KEPT * self.subscription.interval_ms
        for instance_id, instance in self._known.items():
            if now_ms - instance.seen_ms < kept_ms:
                return
            yield instance_id
