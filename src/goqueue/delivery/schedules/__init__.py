"""Schedules: messages for later delivery, stored until they are due.

A delayed message is not in its topic until it is due, so that log order is delivery order for all
consumers. This room tracks when each message is due and its state, in bounded memory whatever the
number of messages. It writes no log and releases nothing: `broker` does, and reports the results.
"""

from goqueue.delivery.schedules.agenda import Agenda, Entry
from goqueue.delivery.schedules.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from goqueue.delivery.schedules.records import (
    NO_EPOCH,
    PARTITION_OPEN,
    NumberRange,
    ProducerBatch,
    ProducerState,
    ScheduledMessage,
    Source,
    end_batch,
    end_move_record,
    end_record,
    forget_leader_epoch_record,
    forget_producer_record,
    leader_epoch_record,
    message_batch,
    message_record,
    move_record,
    number_key,
    producer_key,
    producer_value,
    read_key,
    read_message,
)
from goqueue.delivery.schedules.releases import (
    Intent,
    Lateness,
    ScheduleIds,
    TargetKey,
    intent_record,
    no_intent_record,
    released_records,
)
from goqueue.delivery.schedules.timetable import NEVER_MS, Bucket, DamagedBucket

__all__ = [
    "NEVER_MS",
    "NO_EPOCH",
    "PARTITION_OPEN",
    "Agenda",
    "Bucket",
    "Checkpoint",
    "DamagedBucket",
    "Entry",
    "Intent",
    "Lateness",
    "NumberRange",
    "ProducerBatch",
    "ProducerState",
    "ScheduleIds",
    "ScheduledMessage",
    "Source",
    "TargetKey",
    "end_batch",
    "end_move_record",
    "end_record",
    "forget_leader_epoch_record",
    "forget_producer_record",
    "intent_record",
    "leader_epoch_record",
    "message_batch",
    "message_record",
    "move_record",
    "no_intent_record",
    "number_key",
    "producer_key",
    "producer_value",
    "read_checkpoint",
    "read_key",
    "read_message",
    "released_records",
    "write_checkpoint",
]
