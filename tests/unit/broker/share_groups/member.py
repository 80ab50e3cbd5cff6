"""A member of a share group on a simulated node, as the front end of its protocol acts for it."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.gate.areas.share_groups import ShareFetched
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.batch import decode_batch
from goqueue.model.errors import GoQueueError
from goqueue.model.session import Session
from goqueue.model.share_groups import (
    AckBatch,
    AckType,
    AcquiredRange,
    PartitionOutcome,
    ShareAcknowledge,
    ShareAcks,
    ShareFetch,
    ShareHeartbeat,
    ShareHeartbeatResult,
    ShareWanted,
)
from tests.simulation.world import World

SESSION = Session(listener="clients")


def acks(
    *batches: tuple[int, int, AckType], topic: str = "orders", partition: int = 0
) -> ShareAcks:
    """Return acknowledgements of ranges of one partition."""
    parts = tuple(AckBatch(first, last, bytes((type_,))) for first, last, type_ in batches)
    return ShareAcks(topic, partition, parts)


class Member:
    """One member: it reads all partitions that it is told to."""

    def __init__(self, world: World, name: str, *, group: str = "workers") -> None:
        self.world = world
        self.name = name
        self.group = group
        self.epoch = 0
        self.session_id = 0

    @property
    def gate(self):  # type: ignore[no-untyped-def]
        return self.world.broker.local_gate.share_groups

    def heartbeat(
        self, *, topics: Sequence[str] | None = None, epoch: int | None = None
    ) -> ShareHeartbeatResult:
        call = ShareHeartbeat(
            self.group,
            self.name,
            self.epoch if epoch is None else epoch,
            subscribed_topics=None if topics is None else tuple(topics),
        )
        answer = self.world.wait(self.gate.heartbeat(SESSION, call=call))
        self.epoch = answer.member_epoch
        return answer

    def ask(
        self,
        *settled: ShareAcks,
        partitions: Sequence[int] = (0,),
        topics: Sequence[str] = ("orders",),
        wait_ms: int = 0,
        records_max: int = 500,
        bytes_max: int = 1 << 20,
        is_record_limited: bool = False,
        is_new_session: bool = False,
        batch_records: int = 0,
        cancellation: Cancellation | None = None,
    ) -> Promise[ShareFetched]:
        call = ShareFetch(
            self.group,
            self.name,
            tuple(ShareWanted(topic, number) for topic in topics for number in partitions),
            settled,
            wait_ms,
            bytes_max,
            records_max,
            is_record_limited,
            batch_records,
            is_new_session,
            self.session_id,
        )
        return self.gate.fetch(SESSION, call=call, cancellation=cancellation or Cancellation())

    def fetch(self, *settled: ShareAcks, **options) -> ShareFetched:  # type: ignore[no-untyped-def]
        return self.world.wait(self.ask(*settled, **options))

    def take(self, *settled: ShareAcks, **options) -> list[tuple[int, int, int]]:  # type: ignore[no-untyped-def]
        """Fetch from one partition; return (first, last, delivery count) of what is held now."""
        fetched = self.fetch(*settled, **options)
        errors = [one.error for one in (*fetched.parts, *fetched.acked) if one.error is not None]
        if errors:
            raise errors[0]
        return [ranges_of(one) for part in fetched.parts for one in part.acquired]

    def acknowledge(self, *settled: ShareAcks) -> list[GoQueueError | None]:
        outcomes: list[PartitionOutcome] = self.world.wait(
            self.gate.acknowledge(SESSION, call=ShareAcknowledge(self.group, self.name, settled))
        )
        return [one.error for one in outcomes]

    def release(self, *, is_counted: bool, partitions: Sequence[int] = (0,)) -> None:
        wanted = tuple(ShareWanted("orders", number) for number in partitions)
        self.world.wait(
            self.gate.release(
                SESSION,
                group=self.group,
                member_id=self.name,
                partitions=wanted,
                session_id=self.session_id,
                is_counted=is_counted,
            )
        )


def ranges_of(one: AcquiredRange) -> tuple[int, int, int]:
    return one.first, one.last, one.delivery_count


def values_of(fetched: ShareFetched) -> list[str]:
    """Return the values of the records that the member holds, in the order of the response."""
    values: list[str] = []
    for part in fetched.parts:
        held = {offset for one in part.acquired for offset in range(one.first, one.last + 1)}
        data = b"".join(one.read() for one in part.batches)
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
            values += [
                (record.value or b"").decode()
                for record in decode_batch(data[at : at + size])
                if record.offset in held
            ]
            at += size
    return values
