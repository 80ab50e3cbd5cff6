"""All calls of the API."""

from __future__ import annotations

from functools import partial

from grpc_health.v1 import health_pb2

from goqueue.wire.grpc.handlers import (
    admin,
    consuming,
    dead_letters,
    groups,
    offsets,
    publishing,
    schedules,
    settling,
    topics,
    transactions,
)
from goqueue.wire.grpc.messages import ack_service_pb2 as ack_bodies
from goqueue.wire.grpc.messages import admin_service_pb2 as admin_bodies
from goqueue.wire.grpc.messages import consume_service_pb2 as consume_bodies
from goqueue.wire.grpc.messages import dead_letter_service_pb2 as letter_bodies
from goqueue.wire.grpc.messages import group_service_pb2 as group_bodies
from goqueue.wire.grpc.messages import offset_service_pb2 as offset_bodies
from goqueue.wire.grpc.messages import publish_service_pb2 as publish_bodies
from goqueue.wire.grpc.messages import schedule_service_pb2 as schedule_bodies
from goqueue.wire.grpc.messages import topic_service_pb2 as topic_bodies
from goqueue.wire.grpc.messages import transaction_service_pb2 as transaction_bodies
from goqueue.wire.grpc.routes import Streaming, Unary
from goqueue.wire.grpc.streams import health, reflection
from goqueue.wire.grpc.streams.following import follow
from goqueue.wire.grpc.streams.publishing import publish_stream
from goqueue.wire.grpc.streams.receiving import receive
from goqueue.wire.grpc.streams.subscribing import subscribe

HEALTH = "grpc.health.v1.Health"
REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
REFLECT = "ServerReflectionInfo"

_topic, _publish, _consume, _ack, _offset, _group, _schedule, _letter, _transaction, _admin = (
    partial(Unary, f"goqueue.v1.{name}Service")
    for name in (
        *("Topic", "Publish", "Consume", "Ack", "Offset"),
        *("Group", "Schedule", "DeadLetter", "Transaction", "Admin"),
    )
)

CALLS: tuple[Unary | Streaming, ...] = (
    _topic("CreateTopic", topic_bodies.CreateTopicRequest, topics.create),
    _topic("GetTopic", topic_bodies.GetTopicRequest, topics.get),
    _topic("ListTopics", topic_bodies.ListTopicsRequest, topics.list_all),
    _topic("UpdateTopic", topic_bodies.UpdateTopicRequest, topics.update),
    _topic("GrowTopic", topic_bodies.GrowTopicRequest, topics.grow),
    _topic("DeleteTopic", topic_bodies.DeleteTopicRequest, topics.delete),
    _topic("ListPartitions", topic_bodies.ListPartitionsRequest, topics.partitions),
    _topic("DeleteRecords", topic_bodies.DeleteRecordsRequest, topics.delete_records),
    _publish("Publish", publish_bodies.PublishRequest, publishing.publish),
    Streaming("goqueue.v1.PublishService", "PublishStream", publish_stream, has_requests=True),
    Streaming("goqueue.v1.ConsumeService", "Subscribe", subscribe),
    Streaming("goqueue.v1.ConsumeService", "Receive", receive, "start.consumer", has_requests=True),
    _consume("Pull", consume_bodies.PullRequest, consuming.pull, "consumer", is_waiting=True),
    _consume("Read", consume_bodies.ReadRequest, consuming.read, is_waiting=True),
    Streaming("goqueue.v1.ConsumeService", "Follow", follow),
    _ack("Ack", ack_bodies.AckRequest, settling.ack),
    _ack("Nack", ack_bodies.NackRequest, settling.nack),
    _ack("Reject", ack_bodies.RejectRequest, settling.reject),
    _ack("Extend", ack_bodies.ExtendRequest, settling.extend),
    _offset("CommitOffsets", offset_bodies.CommitOffsetsRequest, offsets.commit),
    _offset("FetchOffsets", offset_bodies.FetchOffsetsRequest, offsets.fetch),
    _offset("ResetOffsets", offset_bodies.ResetOffsetsRequest, offsets.reset, "to"),
    _group("ListGroups", group_bodies.ListGroupsRequest, groups.list_all),
    _group("GetGroup", group_bodies.GetGroupRequest, groups.get),
    _group("PutQueueGroup", group_bodies.PutQueueGroupRequest, groups.put_queue),
    _group("DeleteGroup", group_bodies.DeleteGroupRequest, groups.delete),
    _group("GetLag", group_bodies.GetLagRequest, groups.lag),
    _group("GetQueueStats", group_bodies.GetQueueStatsRequest, groups.stats),
    _group("Peek", group_bodies.PeekRequest, groups.peek),
    _group("Rewind", group_bodies.RewindRequest, groups.rewind),
    _group("Purge", group_bodies.PurgeRequest, groups.purge),
    _schedule(
        "ListSchedules", schedule_bodies.ListSchedulesRequest, schedules.list_all, "page_token"
    ),
    _schedule("CountSchedules", schedule_bodies.CountSchedulesRequest, schedules.count),
    _schedule("GetSchedule", schedule_bodies.GetScheduleRequest, schedules.get),
    _schedule("MoveSchedule", schedule_bodies.MoveScheduleRequest, schedules.move),
    _schedule("CancelSchedules", schedule_bodies.CancelSchedulesRequest, schedules.cancel),
    _letter("ListDeadLetters", letter_bodies.ListDeadLettersRequest, dead_letters.list_all),
    _letter("StartRedrive", letter_bodies.StartRedriveRequest, dead_letters.start),
    _letter("PreviewRedrive", letter_bodies.PreviewRedriveRequest, dead_letters.preview),
    _letter("ListRedrives", letter_bodies.ListRedrivesRequest, dead_letters.list_jobs),
    _letter("GetRedrive", letter_bodies.GetRedriveRequest, dead_letters.get_job),
    _letter("PauseRedrive", letter_bodies.PauseRedriveRequest, dead_letters.pause),
    _letter("ResumeRedrive", letter_bodies.ResumeRedriveRequest, dead_letters.resume),
    _letter("CancelRedrive", letter_bodies.CancelRedriveRequest, dead_letters.cancel),
    _transaction(
        "BeginTransaction",
        transaction_bodies.BeginTransactionRequest,
        transactions.begin,
        "transactional_id",
    ),
    _transaction("GetTransaction", transaction_bodies.GetTransactionRequest, transactions.get),
    _transaction(
        "ListTransactions", transaction_bodies.ListTransactionsRequest, transactions.list_all
    ),
    _transaction(
        "PublishInTransaction", transaction_bodies.PublishInTransactionRequest, transactions.publish
    ),
    _transaction(
        "CommitOffsetsInTransaction",
        transaction_bodies.CommitOffsetsInTransactionRequest,
        transactions.commit_offsets,
    ),
    _transaction("AckInTransaction", transaction_bodies.AckInTransactionRequest, transactions.ack),
    _transaction(
        "CommitTransaction", transaction_bodies.CommitTransactionRequest, transactions.commit
    ),
    _transaction(
        "AbortTransaction", transaction_bodies.AbortTransactionRequest, transactions.abort
    ),
    _admin("GetCluster", admin_bodies.GetClusterRequest, admin.get_cluster),
    _admin("GetSession", admin_bodies.GetSessionRequest, admin.get_session),
    Unary(HEALTH, "Check", health_pb2.HealthCheckRequest, health.check, is_open=True),
    Unary(HEALTH, "List", health_pb2.HealthListRequest, health.list_all, is_open=True),
    Streaming(HEALTH, "Watch", health.watch, is_open=True),
    *(Streaming(one, REFLECT, reflection.reflect) for one in REFLECTION),
)
SERVICES = tuple(dict.fromkeys(one.service for one in CALLS))
