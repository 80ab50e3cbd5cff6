"""Leases, acks, retries, lanes and dead letters: queue behaviour on top of a log.

A log forgets by age, a queue by acknowledgement. This room owns that difference, so that
`partition` stays a plain log. It holds no messages, only their delivery state, as ranges of
offsets wherever possible. It performs no I/O: it collects the events and dead letters that the
caller has to write.

A `Queue` is one group's state of one topic, and a delivery has three steps:

- `queue.choose`: the order of lanes (`lanes`), of keys (`key_order`) and of tenants (`fairness`);
- `queue.lease`: who holds which messages until when, with receipts (`leases`);
- `queue.settling`: ack, nack, reject, extend, or expiry; in transactions, `queue.transactions`.

A `PartitionQueue` has the state of one partition; its durable part is a `Ledger`, which replaying
the events of the journal (`journal`) reproduces.
"""

from goqueue.delivery.by_offset import acquired_ranges, check_batches
from goqueue.delivery.deduplication import Deduplication, IdRoom, Kept, Slot
from goqueue.delivery.grants import Shifted
from goqueue.delivery.inspection import (
    PEEK_MESSAGES_MAX,
    Backlog,
    LaneStats,
    MessageState,
    PartitionStats,
    QueueStats,
    backlog,
    partition_stats,
    peek,
    stats,
)
from goqueue.delivery.journal import (
    LedgerKey,
    decode_events,
    decode_key,
    encode_events,
    encode_key,
)
from goqueue.delivery.lanes import (
    MIXED,
    NO_LANE,
    NORMAL,
    Arrivals,
    LaneIndex,
    LaneState,
    Pick,
    Run,
)
from goqueue.delivery.leases import (
    HEAD_LENGTH,
    TAILS,
    Delivery,
    Lease,
    Unacked,
    check_receipt,
    queue_tag,
)
from goqueue.delivery.ledger import (
    DeadLetter,
    DeadLettered,
    DeadLetterIntent,
    Done,
    Ended,
    Event,
    Finish,
    Forgotten,
    Ledger,
    Moved,
    PendingLetter,
    Prepared,
    Sealed,
)
from goqueue.delivery.partition_queue import PartitionLog
from goqueue.delivery.queue import LeasedRun, Queue
from goqueue.delivery.settings import (
    DELAY_MS_MAX,
    LANE_COUNT,
    LANE_NAMES,
    RECEIVE_MESSAGES_MAX,
    VISIBILITY_MS_MAX,
    LaneSettings,
    QueueSettings,
    change_queue_settings,
    check_queue_settings,
    level_of_changes,
    stored_queue_settings,
)
from goqueue.delivery.settling import SETTLED, Settled, Totals
from goqueue.delivery.transactions import Preparation

__all__ = [
    "DELAY_MS_MAX",
    "HEAD_LENGTH",
    "LANE_COUNT",
    "LANE_NAMES",
    "MIXED",
    "NORMAL",
    "NO_LANE",
    "PEEK_MESSAGES_MAX",
    "RECEIVE_MESSAGES_MAX",
    "SETTLED",
    "TAILS",
    "VISIBILITY_MS_MAX",
    "Arrivals",
    "Backlog",
    "DeadLetter",
    "DeadLetterIntent",
    "DeadLettered",
    "Deduplication",
    "Delivery",
    "Done",
    "Ended",
    "Event",
    "Finish",
    "Forgotten",
    "IdRoom",
    "Kept",
    "LaneIndex",
    "LaneSettings",
    "LaneState",
    "LaneStats",
    "Lease",
    "LeasedRun",
    "Ledger",
    "LedgerKey",
    "MessageState",
    "Moved",
    "PartitionLog",
    "PartitionStats",
    "PendingLetter",
    "Pick",
    "Preparation",
    "Prepared",
    "Queue",
    "QueueSettings",
    "QueueStats",
    "Run",
    "Sealed",
    "Settled",
    "Shifted",
    "Slot",
    "Totals",
    "Unacked",
    "acquired_ranges",
    "backlog",
    "change_queue_settings",
    "check_batches",
    "check_queue_settings",
    "check_receipt",
    "decode_events",
    "decode_key",
    "encode_events",
    "encode_key",
    "level_of_changes",
    "partition_stats",
    "peek",
    "queue_tag",
    "stats",
    "stored_queue_settings",
]
