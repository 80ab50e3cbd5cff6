"""Messages over gRPC, with the client of grpcio: published, received, settled, read."""

from __future__ import annotations

import grpc
import pytest
from confluent_kafka import Consumer, Producer
from google.rpc import error_details_pb2

from goqueue.wire.grpc.messages import ack_service_pb2 as acking
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import dead_letter_service_pb2 as letters
from goqueue.wire.grpc.messages import group_service_pb2 as groups
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import offset_service_pb2 as offsets
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from goqueue.wire.grpc.messages import schedule_service_pb2 as schedules
from goqueue.wire.grpc.messages import topic_service_pb2 as topics
from goqueue.wire.grpc.messages import transaction_service_pb2 as transactions
from tests.integration.process import Broker
from tests.integration.waiting import eventually

from .calls import Rpc, details_of, messages, reason_of

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def position(**at: int) -> dict[str, consuming.Position]:
    return {"from": consuming.Position(**at)}


def test_a_kafka_consumer_reads_what_is_published_with_all_its_fields(
    node: Broker, rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    rpc.metadata = (("traceparent", TRACE),)
    outgoing = [
        shared.OutgoingMessage(
            key=b"k",
            value=b"v",
            headers=[shared.Header(name="h", value=b"\xff"), shared.Header(name="null")],
        ),
        shared.OutgoingMessage(key=b"tombstone"),
        shared.OutgoingMessage(value=b"", timestamp_ms=1_700_000_000_000),
    ]
    report = rpc.call(
        rpc.publishing.Publish, publishing.PublishRequest(topic=name, messages=outgoing)
    ).report
    assert list(report.partitions) == [0, 0, 0]
    assert list(report.offsets) == [0, 1, 2]
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    first, tombstone, empty = consumer.consume(3, timeout=20)
    consumer.close()
    trace = ("traceparent", TRACE.encode())
    assert (first.key(), first.value()) == (b"k", b"v")
    assert first.headers() == [("h", b"\xff"), ("null", None), trace]
    assert (tombstone.key(), tombstone.value()) == (b"tombstone", None)
    assert (empty.key(), empty.value(), empty.timestamp()[1]) == (None, b"", 1_700_000_000_000)


def test_each_message_of_a_batch_has_its_own_outcome(rpc: Rpc, name: str) -> None:
    outgoing = [
        shared.OutgoingMessage(value=b"now"),
        shared.OutgoingMessage(value=b"later", delay_ms=3_600_000),
        shared.OutgoingMessage(value=b"bad", priority=77),  # type: ignore[arg-type]
        shared.OutgoingMessage(value=b"nowhere", partition=99),
    ]
    report = rpc.call(
        rpc.publishing.Publish, publishing.PublishRequest(topic=name, messages=outgoing)
    ).report
    assert list(report.offsets) == [0, -1, -1, -1]
    assert [(one.index, one.error.reason) for one in report.errors] == [
        (2, "invalid_field"),
        (3, "unknown_partition"),
    ]
    [scheduled] = report.scheduled
    assert scheduled.index == 1
    listed = rpc.call(rpc.schedules.ListSchedules, schedules.ListSchedulesRequest(topic=name))
    assert [one.id for one in listed.schedules] == [scheduled.schedule_id]
    shown = rpc.call(
        rpc.schedules.GetSchedule, schedules.GetScheduleRequest(id=scheduled.schedule_id)
    )
    assert shown.value == b"later"
    ids = [scheduled.schedule_id, "AAAA"]
    cancelled = rpc.call(rpc.schedules.CancelSchedules, schedules.CancelSchedulesRequest(ids=ids))
    assert [one.id for one in cancelled.errors] == ["AAAA"]
    counted = rpc.call(rpc.schedules.CountSchedules, schedules.CountSchedulesRequest(topic=name))
    assert counted.count == 0


def test_a_publish_stream_answers_every_request_and_keeps_the_order_of_a_partition(
    rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    count = 200
    requests = (
        publishing.PublishStreamRequest(
            number=number, topic="" if number else name, messages=messages(b"%d" % number)
        )
        for number in range(count)
    )
    answers = {one.number: one.report.offsets[0] for one in rpc.publishing.PublishStream(requests)}
    assert answers == {number: number for number in range(count)}


def test_a_bad_request_of_a_publish_stream_does_not_end_it(rpc: Rpc, name: str) -> None:
    rpc.create(name)
    requests = [
        publishing.PublishStreamRequest(number=1, topic=name, messages=messages(b"a")),
        publishing.PublishStreamRequest(number=2, topic="not a name!", messages=messages(b"b")),
        publishing.PublishStreamRequest(number=3, topic=name),
        publishing.PublishStreamRequest(number=4, topic=name, messages=messages(b"c")),
    ]
    answers = {one.number: one for one in rpc.publishing.PublishStream(iter(requests))}
    assert answers[1].report.offsets == [0]
    assert answers[2].error.reason == "invalid_topic_name"
    assert answers[3].error.reason == "invalid_field"
    assert answers[4].report.offsets == [1]


def test_a_receive_stream_gives_no_more_than_its_credit_and_confirms_what_is_settled(
    rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    rpc.publish(name, *(b"%d" % number for number in range(10)))
    start = consuming.ReceiveStart(group=name, topic=name, consumer="me")
    stream = rpc.stream(rpc.consuming.Receive, consuming.ReceiveRequest(start=start, credit=4))
    first = stream.next().messages
    assert [one.value for one in first] == [b"0", b"1", b"2", b"3"]
    assert all(one.attempt == 1 and one.leased_until_ms for one in first)
    stream.send(
        consuming.ReceiveRequest(
            number=7,
            ack=[first[0].receipt, "not-a-receipt"],
            nack=[consuming.Nack(receipts=[first[1].receipt], delay_ms=0)],
            extend=[consuming.Extend(receipts=[first[3].receipt], visibility_ms=60_000)],
        )
    )
    [settled] = stream.next().settlements
    assert (settled.number, settled.accepted) == (7, 3)
    assert [one.error.reason for one in settled.errors] == ["invalid_receipt"]
    stream.send(consuming.ReceiveRequest(credit=100))
    again = stream.next().messages
    assert {one.value for one in again} <= {b"1", *(b"%d" % number for number in range(4, 10))}
    received = {one.value for one in again}
    while b"1" not in received:
        received |= {one.value for one in stream.next().messages}
    stream.close()
    stats = rpc.call(rpc.groups.GetQueueStats, groups.GetQueueStatsRequest(group=name, topic=name))
    assert stats.in_flight == 9


def test_a_receive_stream_whose_client_sends_no_more_ends_when_its_credit_is_used_up(
    rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    start = consuming.ReceiveStart(group=name, topic=name)
    stream = rpc.stream(rpc.consuming.Receive, consuming.ReceiveRequest(start=start, credit=3))
    stream.half_close()
    rpc.publish(name, b"a", b"b", b"c", b"d")
    values = [one.value for response in stream for one in response.messages]
    assert values == [b"a", b"b", b"c"]
    assert stream.call.code() is grpc.StatusCode.OK


def test_a_receive_stream_that_is_stopped_settles_what_it_has_and_keeps_nothing(
    rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    rpc.publish(name, *(b"%d" % number for number in range(10)))
    start = consuming.ReceiveStart(group=name, topic=name)
    stream = rpc.stream(rpc.consuming.Receive, consuming.ReceiveRequest(start=start, credit=100))
    held = [one.receipt for one in stream.next().messages]
    stream.send(consuming.ReceiveRequest(stop=True, number=1))
    while not (response := stream.next()).settlements:
        held += [one.receipt for one in response.messages]
    assert [one.number for one in response.settlements] == [1]
    rpc.publish(name, b"too late")
    stream.send(consuming.ReceiveRequest(number=2, ack=held))
    [settled] = stream.next().settlements
    assert (settled.number, settled.accepted, len(held)) == (2, 10, 10)
    stream.half_close()
    assert list(stream) == []
    assert stream.call.code() is grpc.StatusCode.OK
    stats = rpc.call(rpc.groups.GetQueueStats, groups.GetQueueStatsRequest(group=name, topic=name))
    assert (stats.ready, stats.in_flight) == (1, 0)


def test_a_receive_stream_that_waits_for_messages_can_be_stopped(rpc: Rpc, name: str) -> None:
    rpc.create(name)
    start = consuming.ReceiveStart(group=name, topic=name)
    stream = rpc.stream(rpc.consuming.Receive, consuming.ReceiveRequest(start=start, credit=100))
    stream.send(consuming.ReceiveRequest(stop=True, number=1))
    stream.half_close()
    assert [one.number for response in stream for one in response.settlements] == [1]
    late = consuming.ReceiveRequest(credit=1)
    stream = rpc.stream(rpc.consuming.Receive, consuming.ReceiveRequest(start=start))
    stream.send(consuming.ReceiveRequest(stop=True, number=1))
    stream.send(late)
    with pytest.raises(grpc.RpcError) as raised:
        list(stream)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    stream.half_close()


def test_rejected_messages_are_listed_as_dead_letters_and_redriven(rpc: Rpc, name: str) -> None:
    rpc.create(name)
    rpc.publish(name, b"bad")
    [message] = rpc.pull(name, name)
    request = acking.RejectRequest(group=name, receipts=[message.receipt], reason="no good")
    assert not rpc.call(rpc.acks.Reject, request).errors

    def listed() -> list[letters.DeadLetter]:
        request = letters.ListDeadLettersRequest(topic=name)
        return list(rpc.call(rpc.letters.ListDeadLetters, request).letters)

    eventually(lambda: bool(listed()), because="the message is dead-lettered")
    [letter] = listed()
    assert (letter.message.value, letter.reason, letter.source_topic) == (b"bad", "no good", name)
    order = letters.RedriveOrder(filter=letters.LetterFilter(reason="no good"))
    preview = rpc.call(
        rpc.letters.PreviewRedrive, letters.PreviewRedriveRequest(topic=name, order=order)
    )
    assert preview.matching == 1
    job = rpc.call(
        rpc.letters.StartRedrive, letters.StartRedriveRequest(topic=name, order=order)
    ).redrive
    [again] = rpc.pull(name, name, wait_ms=20_000)
    assert again.value == b"bad"
    shown = rpc.call(rpc.letters.GetRedrive, letters.GetRedriveRequest(topic=name, id=job.id))
    assert shown.redrive.id == job.id


def test_a_subscription_delivers_what_others_publish_and_its_commits_are_kept(
    node: Broker, rpc: Rpc, name: str
) -> None:
    rpc.create(name, partitions=2)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(20):
        producer.produce(name, b"%d" % number, partition=number % 2)
    producer.flush(20)
    stream = rpc.consuming.Subscribe(consuming.SubscribeRequest(group=name, topics=[name]))
    seen: set[bytes] = set()
    last: consuming.SubscribeResponse | None = None
    while len(seen) < 20:
        last = next(stream)
        seen |= {one.value for one in last.messages}
    assert last is not None
    commit = offsets.CommitOffsetsRequest(
        group=name,
        member_id=last.member_id,
        member_epoch=last.member_epoch,
        offsets=[offsets.OffsetToCommit(topic=name, partition=0, offset=10, metadata="done")],
    )
    assert not rpc.call(rpc.offsets.CommitOffsets, commit).errors
    stream.cancel()
    fetched = rpc.call(rpc.offsets.FetchOffsets, offsets.FetchOffsetsRequest(group=name))
    [kept] = fetched.offsets
    assert (kept.partition, kept.offset, kept.metadata) == (0, 10, "done")


def test_two_subscriptions_share_the_partitions_and_one_takes_over_from_the_other(
    rpc: Rpc, name: str
) -> None:
    rpc.create(name, partitions=4)
    request = consuming.SubscribeRequest(group=name, topics=[name])
    first, second = rpc.consuming.Subscribe(request), rpc.consuming.Subscribe(request)

    def owned(stream: object, count: int) -> None:
        for response in stream:  # type: ignore[attr-defined]
            if response.is_assigned:
                numbers = [one for part in response.assignment for one in part.partitions]
                if len(numbers) == count:
                    return

    owned(first, 2)
    owned(second, 2)
    first.cancel()
    owned(second, 4)
    second.cancel()


def test_a_page_and_its_cursor_read_everything_once(rpc: Rpc, name: str) -> None:
    rpc.create(name, partitions=3)
    for number in range(10):
        rpc.publish(name, b"%d" % number)
    request = consuming.ReadRequest(topic=name, messages_max=4, **position(start=1))
    values: list[bytes] = []
    while page := rpc.call(rpc.consuming.Read, request).messages:
        values += [one.value for one in page]
        cursor = rpc.call(rpc.consuming.Read, request).cursor
        request = consuming.ReadRequest(topic=name, messages_max=4, cursor=cursor)
    assert sorted(values) == [b"%d" % number for number in range(10)]


def test_a_follower_gets_what_is_published_after_it_began(rpc: Rpc, name: str) -> None:
    rpc.create(name)
    rpc.publish(name, b"before")
    stream = rpc.consuming.Follow(
        consuming.FollowRequest(topic=name, **position(offset=0), partition=0)
    )
    assert [one.value for one in next(stream).messages] == [b"before"]
    rpc.publish(name, b"after")
    response = next(stream)
    assert [one.value for one in response.messages] == [b"after"]
    assert [one.offset for one in response.cursor] == [2]
    stream.cancel()


def test_messages_acks_and_offsets_of_a_transaction_take_effect_together(
    rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    rpc.publish(name, b"in")
    [message] = rpc.pull(name, name)
    begun = rpc.call(rpc.transactions.BeginTransaction, transactions.BeginTransactionRequest())
    handle = begun.transaction_id
    out = transactions.TopicMessage(topic=name, message=shared.OutgoingMessage(value=b"out"))
    rpc.call(
        rpc.transactions.PublishInTransaction,
        transactions.PublishInTransactionRequest(transaction_id=handle, messages=[out]),
    )
    acked = transactions.AckInTransactionRequest(
        transaction_id=handle, group=name, receipts=[message.receipt]
    )
    assert not rpc.call(rpc.transactions.AckInTransaction, acked).errors
    assert rpc.pull(name, name, wait_ms=100) == []
    rpc.call(
        rpc.transactions.CommitTransaction,
        transactions.CommitTransactionRequest(transaction_id=handle),
    )
    assert [one.value for one in rpc.pull(name, name)] == [b"out"]


def test_topics_are_listed_in_pages_and_changed_by_a_mask(rpc: Rpc, name: str) -> None:
    for number in range(3):
        rpc.create(f"{name}-{number}")
    request = topics.ListTopicsRequest(prefix=name, page_size=2)
    page = rpc.call(rpc.topics.ListTopics, request)
    assert [one.name for one in page.topics] == [f"{name}-0", f"{name}-1"]
    request.page_token = page.next_page_token
    page = rpc.call(rpc.topics.ListTopics, request)
    assert ([one.name for one in page.topics], page.next_page_token) == ([f"{name}-2"], "")
    change = topics.UpdateTopicRequest(topic=f"{name}-0", settings={"retention_ms": "5000"})
    assert rpc.call(rpc.topics.UpdateTopic, change).topic.settings == {"retention_ms": "5000"}
    change = topics.UpdateTopicRequest(topic=f"{name}-0")
    change.update_mask.paths.append("settings.retention_ms")
    assert not rpc.call(rpc.topics.UpdateTopic, change).topic.settings
    grown = rpc.call(rpc.topics.GrowTopic, topics.GrowTopicRequest(topic=f"{name}-0", partitions=3))
    assert grown.topic.partitions == 3
    rpc.call(rpc.topics.DeleteTopic, topics.DeleteTopicRequest(topic=f"{name}-0"))


def test_errors_have_a_status_and_details_that_programs_can_read(rpc: Rpc, name: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        rpc.call(rpc.topics.GetTopic, topics.GetTopicRequest(topic=name))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert reason_of(raised.value) == "unknown_topic"
    rpc.create(name)
    with pytest.raises(grpc.RpcError) as raised:
        rpc.create(name)
    assert raised.value.code() is grpc.StatusCode.ALREADY_EXISTS
    with pytest.raises(grpc.RpcError) as raised:
        rpc.call(rpc.topics.ListTopics, topics.ListTopicsRequest(page_size=-1))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    [bad] = details_of(raised.value, error_details_pb2.BadRequest)
    assert [one.field for one in bad.field_violations] == ["page_size"]


def test_a_pull_returns_before_its_deadline(rpc: Rpc, name: str) -> None:
    rpc.create(name)
    request = consuming.PullRequest(group=name, topic=name, wait_ms=60_000)
    assert not rpc.consuming.Pull(request, timeout=2).messages
