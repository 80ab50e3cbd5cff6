"""The shares of this node in the quotas of its cluster.

Every second the node reports what it used of each limit to the active controller, which answers
with its shares. A bucket that is new holds a little until the answer to an extra report, a few
milliseconds later. While there is no controller the last shares stay in effect, and what has none
gets an equal share.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from goqueue.broker.quotas.meters import RateLimit
from goqueue.broker.quotas.quotas import Quotas
from goqueue.broker.replication.clustering import Clustering
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, PeerKind, Peers, read_answer
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotController
from goqueue.tenancy.shares import (
    Allotment,
    Count,
    Demand,
    Report,
    Shares,
    least_share,
    longest_wait_ms,
)

SOON_MS = 10  # an extra report gathers the buckets that are new
ANSWER_MS_MAX = 1_000
IDLE_MS = 5_000  # a share that is not used for so long is returned
PROVISIONAL_WAIT_MS = 100  # the share is known before that
RATED_MS_MIN = 1_000  # use is measured over no less

_encode = msgspec.msgpack.Encoder().encode
_report_decoder = msgspec.msgpack.Decoder(Report)
_allotment_decoder = msgspec.msgpack.Decoder(Allotment)


class QuotaSharing:
    """Reports use and applies shares; on the controller, divides the quotas."""

    def __init__(self, clock: Clock, quotas: Quotas, cluster: Clustering, peers: Peers) -> None:
        self._clock = clock
        self._quotas = quotas
        self._cluster = cluster
        self._quorum = cluster.quorum
        self._peers = peers
        self._node_id = cluster.node_id
        self._shares: tuple[int, Shares] | None = None  # with the term of the controller
        self._is_soon = False
        quotas.share = self._begin
        quotas.on_tick = self._report
        peers.serve(PeerKind.QUOTAS, self._serve)

    # This node

    def _begin(self, rate: RateLimit) -> None:
        """Give a new bucket the least share until the controller answers."""
        self._provide(rate)
        rate.reported_ms = self._clock.now_ms()
        if not self._is_soon:
            self._is_soon = True
            self._clock.call_later(SOON_MS, self._report_soon)

    def _report_soon(self) -> None:
        self._is_soon = False
        self._report()

    def _report(self) -> None:
        now_ms = self._clock.now_ms()
        rates = [one for one in self._quotas.rates.values() if self._is_due(one, now_ms)]
        counts = list(self._quotas.counts.values())
        report = Report(
            tuple(_demand(one, now_ms) for one in rates),
            tuple(Count(*one.key, one.here) for one in counts),
        )

        def answered(allotment: Allotment | None, _: Exception | None) -> None:
            if allotment is None:
                self._stay(rates)
                return
            for rate, share in zip(rates, allotment.shares, strict=True):
                self._hold(rate, share, is_provisional=False)
            for count, elsewhere in zip(counts, allotment.elsewhere, strict=True):
                count.elsewhere = elsewhere

        self._ask(report).then(answered)

    def _is_due(self, rate: RateLimit, now_ms: int) -> bool:
        """Whether to report a limit; an idle share is returned by not reporting it."""
        if not rate.is_shared:
            return False
        is_idle = now_ms - rate.bucket.used_ms >= IDLE_MS and rate.bucket.is_full(now_ms)
        if is_idle and rate.held:
            self._provide(rate)
        return not is_idle

    def _stay(self, rates: Sequence[RateLimit]) -> None:
        """Without a controller, keep shares; what has none gets an equal one."""
        for rate in rates:
            if not rate.held:
                self._hold(rate, rate.limit / self._node_count(), is_provisional=False)

    def _provide(self, rate: RateLimit) -> None:
        """Let a limit that has no share be used a little."""
        self._hold(rate, least_share(rate.limit, self._node_count()), is_provisional=True)
        rate.held = 0.0

    def _hold(self, rate: RateLimit, share: float, *, is_provisional: bool) -> None:
        rate.held = share
        rate.bucket.change_rate(share, self._clock.now_ms())
        rate.bucket.wait_ms_max = (
            PROVISIONAL_WAIT_MS
            if is_provisional
            else longest_wait_ms(share, rate.limit, self._node_count())
        )

    def _node_count(self) -> int:
        return max(1, len(self._cluster.nodes()))

    def _ask(self, report: Report) -> Promise[Allotment]:
        promise: Promise[Allotment] = Promise()
        controller = self._quorum.leader
        if self._quorum.is_controller:
            promise.resolve(self._divide(self._node_id, report))
            return promise
        if controller < 0:
            promise.reject(NotController(controller))
            return promise
        called = self._peers.call(
            controller, PeerKind.QUOTAS, _encode(report), timeout_ms=ANSWER_MS_MAX
        )
        return read_answer(called, lambda answer: _allotment_decoder.decode(answer.head))

    # The controller

    def _serve(self, caller: int, head: bytes, _: memoryview) -> Promise[Answer]:
        if not self._quorum.is_controller:
            raise NotController(self._quorum.leader)
        answer: Promise[Answer] = Promise()
        answer.resolve(Answer(_encode(self._divide(caller, _report_decoder.decode(head)))))
        return answer

    def _divide(self, node: int, report: Report) -> Allotment:
        now_ms, term = self._clock.now_ms(), self._quorum.term
        if self._shares is None or self._shares[0] != term:
            self._shares = (term, Shares(now_ms))
        nodes = {one.id for one in self._cluster.nodes()} | {node}
        return self._shares[1].report(node, report, nodes=nodes, now_ms=now_ms)


def _demand(rate: RateLimit, now_ms: int) -> Demand:
    """Return what was used since the last report, and begin to count again."""
    bucket = rate.bucket
    elapsed_ms = max(RATED_MS_MIN, now_ms - rate.reported_ms)
    demand = Demand(
        *rate.key,
        limit=rate.limit,
        rate=bucket.used * 1_000 / elapsed_ms,
        is_short=bucket.is_short,
        held=rate.held,
    )
    bucket.used, bucket.is_short, rate.reported_ms = 0, False, now_ms
    return demand
