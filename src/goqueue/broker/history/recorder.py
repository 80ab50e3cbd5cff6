"""Records what a node does: a row of rates every few seconds, from the counters of its metrics.

Nothing is done per message. A sample reads each counter of topics once, in slices of the event
loop; the lag of groups is what the leaders of their partitions say, as for a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from goqueue.broker.history.figures import GroupFigures
from goqueue.broker.history.ring import Ring
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Promise, start
from goqueue.loop.turns import turn
from goqueue.metrics import Counter, Histogram, Metric, Registry
from goqueue.metrics import catalogue as c
from goqueue.model.errors import GoQueueError

KEPT_MS = 6 * 3_600_000
NODE_STEP_MS = 10_000
DETAIL_STEP_MS = 60_000  # of topics and groups
TOPICS_MAX = 200  # with a history of their own: 6 KB each
GROUPS_MAX = 200  # 3 KB each
RATED_MAX = 20_000  # topics with current rates
QUIET_BUCKETS = 10  # details without traffic may be replaced after so many
COUNTERS_PER_SLICE = 1_000
# A sample of lag takes no more than this share of the time.
LAG_SHARE = 50

NODE_SERIES = (
    *("in_per_s", "in_bytes_per_s", "out_per_s", "out_bytes_per_s"),
    *("delivered_per_s", "acked_per_s", "dead_lettered_per_s", "scheduled_per_s"),
    *("requests_per_s", "request_errors_per_s"),
)
TOPIC_SERIES = NODE_SERIES[:4]
GROUP_SERIES = ("lag", "lag_ms")

_INTERNAL = "__"  # what names of internal topics begin with


class Rates(NamedTuple):
    """Messages and bytes per second, stored and read."""

    in_per_s: float = 0.0
    in_bytes_per_s: float = 0.0
    out_per_s: float = 0.0
    out_bytes_per_s: float = 0.0


NO_RATES = Rates()
_Counts = tuple[float, float, float, float]

# What a topic counts, and where that is in its rates.
_OF_TOPICS: tuple[tuple[Metric, int, int], ...] = (  # metric, place of the topic's label, place
    (c.PRODUCER_MESSAGES, 0, 0),
    (c.PRODUCER_BYTES, 0, 1),
    (c.CONSUMER_MESSAGES, 0, 2),
    (c.CONSUMER_BYTES, 0, 3),
    (c.QUEUE_DELIVERED, 1, 2),
)

LagOfAll = Callable[[], Promise[Mapping[str, GroupFigures]]]


class Recorder:
    """The history of one node."""

    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        *,
        has_groups: Callable[[], bool],
        look_at_groups: LagOfAll,
    ) -> None:
        """`look_at_groups` returns how far every group of this node is behind."""
        self.node = Ring(KEPT_MS // NODE_STEP_MS, len(NODE_SERIES))
        self.topics: dict[str, Ring] = {}
        self.groups: dict[str, Ring] = {}
        self._clock = clock
        self._registry = registry
        self._has_groups = has_groups
        self._look_at_groups = look_at_groups
        self._timer: Handle | None = None
        self._sampled_ms = 0
        self._before: list[float] = []
        self._counts: dict[str, _Counts] = {}
        self._rates: dict[str, Rates] = {}  # of topics with traffic
        self._minute_counts: dict[str, _Counts] = {}
        self._minute_ms = 0
        self._lag_from_ms = 0  # when the next sample of lag may begin

    def start(self) -> None:
        """Take samples from now on."""
        self._sampled_ms = self._minute_ms = self._clock.now_ms()
        self._before = self._totals()
        self._next()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rates(self, topic: str) -> Rates:
        """Return the rates of a topic on this node, as of the last sample."""
        return self._rates.get(topic, NO_RATES)

    def topics_with_rates(self) -> Mapping[str, Rates]:
        return self._rates

    # Sampling

    def _next(self) -> None:
        step = NODE_STEP_MS - self._clock.wall_ms() % NODE_STEP_MS
        self._timer = self._clock.call_later(step, self._ring)

    def _ring(self) -> None:
        start(self.sample(), self._sampled)

    def _sampled(self, _: None, error: Exception | None) -> None:
        if error is not None:
            raise error
        if self._timer is not None:
            self._next()

    async def sample(self) -> None:
        """Take one sample."""
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        seconds = (now_ms - self._sampled_ms) / 1000
        if seconds <= 0:
            return
        self._sampled_ms = now_ms
        totals = self._totals()
        rates = [max(0.0, now - before) / seconds for now, before in self._pairs(totals)]
        self._before = totals
        counts = await self._count_topics()
        self._rates = await self._rates_of(counts, self._counts, seconds)
        self._counts = counts
        self._add_topics(rates, counts, self._rates)
        # The row of the interval that has just ended, even if the timer was a little late.
        self.node.put((wall_ms - NODE_STEP_MS // 2) // NODE_STEP_MS, rates)
        if now_ms - self._minute_ms >= DETAIL_STEP_MS - NODE_STEP_MS // 2:
            bucket = (wall_ms - DETAIL_STEP_MS // 2) // DETAIL_STEP_MS
            await self._sample_details(now_ms, bucket, counts)

    def _pairs(self, totals: list[float]) -> list[tuple[float, float]]:
        return list(zip(totals, self._before or totals, strict=True))

    def _add_topics(
        self, rates: list[float], counts: Collection[str], by_topic: Mapping[str, Rates]
    ) -> None:
        for number in range(len(TOPIC_SERIES)):
            rates[number] = sum(one[number] for one in by_topic.values())

    def _totals(self) -> list[float]:
        """Return what the node has done so far, in the order of the series."""
        families = self._registry.families()

        def total(metric: Metric, **wanted: str) -> float:
            places = [(metric.labels.index(name), value) for name, value in wanted.items()]
            found = 0.0
            for labels, one in families.get(metric, {}).items():
                if all(labels[place] == value for place, value in places):
                    if isinstance(one, Counter):
                        found += one.value
                    elif isinstance(one, Histogram):
                        found += one.count
            return found

        return [
            *(0.0, 0.0, 0.0, 0.0),  # The sums of the topics.
            total(c.QUEUE_DELIVERED),
            total(c.QUEUE_SETTLED, outcome="acked"),
            total(c.QUEUE_DEAD_LETTERED),
            total(c.SCHEDULE_SCHEDULED),
            total(c.REQUEST_DURATION),
            total(c.REQUEST_ERRORS),
        ]

    async def _count_topics(self) -> dict[str, _Counts]:
        """Return what each topic has counted so far."""
        families = self._registry.families()
        counts: dict[str, list[float]] = {}
        done = 0
        for metric, label, place in _OF_TOPICS:
            for labels, one in list(families.get(metric, {}).items()):
                done += 1
                if done % COUNTERS_PER_SLICE == 0:
                    await turn(self._clock)
                topic = labels[label]
                if topic.startswith(_INTERNAL) or not isinstance(one, Counter):
                    continue
                known = counts.get(topic)
                if known is None:
                    if len(counts) >= RATED_MAX:
                        continue
                    known = counts[topic] = [0.0, 0.0, 0.0, 0.0]
                known[place] += one.value
        return {topic: (one[0], one[1], one[2], one[3]) for topic, one in counts.items()}

    async def _rates_of(
        self, counts: Mapping[str, _Counts], before: Mapping[str, _Counts], seconds: float
    ) -> dict[str, Rates]:
        """Return the rates of the topics whose counts have changed."""
        rates = {}
        for number, (topic, now) in enumerate(counts.items()):
            if number % COUNTERS_PER_SLICE == COUNTERS_PER_SLICE - 1:
                await turn(self._clock)
            then = before.get(topic, (0.0, 0.0, 0.0, 0.0))
            if now != then:
                pairs = zip(now, then, strict=True)
                rates[topic] = Rates(*[max(0.0, new - old) / seconds for new, old in pairs])
        return rates

    # Details

    async def _sample_details(
        self, now_ms: int, bucket: int, counts: Mapping[str, _Counts]
    ) -> None:
        seconds = (now_ms - self._minute_ms) / 1000
        rates = await self._rates_of(counts, self._minute_counts, seconds)
        self._minute_counts, self._minute_ms = dict(counts), now_ms
        quiet = _quiet(self.topics, bucket)
        for topic in {*rates, *self.topics}:
            ring = self._ring_of(self.topics, topic, TOPICS_MAX, len(TOPIC_SERIES), quiet)
            if ring is not None:
                ring.put(bucket, rates.get(topic, NO_RATES))
        if self._has_groups() and now_ms >= self._lag_from_ms:
            await self._sample_lag(bucket)

    async def _sample_lag(self, bucket: int) -> None:
        began_ms = self._clock.now_ms()
        try:
            figures = await self._look_at_groups()
        except GoQueueError:
            return  # The next sample may find the leaders.
        ended_ms = self._clock.now_ms()
        self._lag_from_ms = ended_ms + LAG_SHARE * (ended_ms - began_ms)
        quiet = _quiet(self.groups, bucket)
        behind = {name: one for name, one in figures.items() if one.lag or name in self.groups}
        for number, (name, one) in enumerate(behind.items()):
            if number % COUNTERS_PER_SLICE == COUNTERS_PER_SLICE - 1:
                await turn(self._clock)
            ring = self._ring_of(self.groups, name, GROUPS_MAX, len(GROUP_SERIES), quiet)
            if ring is not None:
                ring.put(bucket, (one.lag, one.lag_ms or 0))

    def _ring_of(
        self, rings: dict[str, Ring], name: str, most: int, width: int, quiet: Iterator[str]
    ) -> Ring | None:
        """Return the history of a topic or group; None while as many others are active.

        `quiet` yields those that may be replaced, to all that need a place in one sample.
        """
        known = rings.get(name)
        if known is not None:
            return known
        if len(rings) >= most:
            replaced = next(quiet, None)
            if replaced is None:
                return None
            del rings[replaced]
        made = rings[name] = Ring(KEPT_MS // DETAIL_STEP_MS, width)
        return made


def _quiet(rings: Mapping[str, Ring], bucket: int) -> Iterator[str]:
    """Yield the names of which nothing but zeros was recorded for a while, looking once at each."""
    for name, ring in list(rings.items()):
        if ring.is_quiet(bucket - QUIET_BUCKETS):
            yield name


__all__ = [
    "DETAIL_STEP_MS",
    "GROUP_SERIES",
    "KEPT_MS",
    "NODE_SERIES",
    "NODE_STEP_MS",
    "TOPIC_SERIES",
    "Rates",
    "Recorder",
]
