"""Topics: their partitions and settings."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.client.grpc.messages import time_of
from goqueue.client.grpc.request import call, nothing, series
from goqueue.client.http.moments import Position
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.requests import topics as http
from goqueue.client.http.steps import Steps
from goqueue.wire.grpc.messages import topic_service_pb2 as wire
from goqueue.wire.http.bodies.topics import (
    Deleted,
    Partition,
    SettingValue,
    Topic,
    TopicDescription,
)

PAGE_SIZE = 1000


class TopicRequests(http.TopicRequests):
    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> Request[TopicDescription]:
        request = wire.CreateTopicRequest(
            name=name,
            partitions=partitions,
            replication=replication,
            settings={key: _text(value) for key, value in (settings or {}).items()},
        )
        made = call(
            "TopicService/CreateTopic",
            request,
            wire.CreateTopicResponse,
            nothing,
            repeat=Repeat.AMBIGUOUS,
        )
        return self._then_described(name, made)

    def list_all(self, *, prefix: str = "", internal: bool = False) -> Request[list[Topic]]:
        def steps() -> Steps[list[Topic]]:
            found: list[Topic] = []
            token = ""
            while True:
                request = wire.ListTopicsRequest(
                    page_size=PAGE_SIZE, page_token=token, prefix=prefix, with_internal=internal
                )
                page: wire.ListTopicsResponse = yield call(
                    "TopicService/ListTopics", request, wire.ListTopicsResponse, lambda one: one
                )
                found += [_topic(one) for one in page.topics]
                token = page.next_page_token
                if not token:
                    return found

        return series(steps)

    def describe(self, topic: str) -> Request[TopicDescription]:
        request = wire.GetTopicRequest(topic=topic)
        return call("TopicService/GetTopic", request, wire.GetTopicResponse, _description)

    def configure(
        self, topic: str, settings: Mapping[str, SettingValue | None]
    ) -> Request[TopicDescription]:
        given = {name: _text(value) for name, value in settings.items() if value is not None}
        request = wire.UpdateTopicRequest(topic=topic, settings=given)
        request.update_mask.paths.extend(f"settings.{name}" for name in settings)
        made = call("TopicService/UpdateTopic", request, wire.UpdateTopicResponse, nothing)
        return self._then_described(topic, made)

    def delete(self, topic: str) -> Request[None]:
        return call(
            "TopicService/DeleteTopic",
            wire.DeleteTopicRequest(topic=topic),
            wire.DeleteTopicResponse,
            nothing,
            repeat=Repeat.AMBIGUOUS,
        )

    def partitions(self, topic: str) -> Request[list[Partition]]:
        request = wire.ListPartitionsRequest(topic=topic)
        return call(
            "TopicService/ListPartitions", request, wire.ListPartitionsResponse, _partitions
        )

    def grow(self, topic: str, *, partitions: int) -> Request[list[Partition]]:
        def steps() -> Steps[list[Partition]]:
            yield call(
                "TopicService/GrowTopic",
                wire.GrowTopicRequest(topic=topic, partitions=partitions),
                wire.GrowTopicResponse,
                nothing,
                repeat=Repeat.AMBIGUOUS,
            )
            found: list[Partition] = yield self.partitions(topic)
            return found

        return series(steps)

    def delete_records(
        self,
        topic: str,
        *,
        partition: int | None = None,
        before_offset: int | None = None,
        before: Position | None = None,
    ) -> Request[list[Deleted]]:
        # Without a time, everything that is readable now is deleted; `latest` means the same.
        is_time = before not in (None, "latest")
        request = wire.DeleteRecordsRequest(
            topic=topic,
            partition=partition,
            before_offset=before_offset,
            before_time_ms=time_of(before) if is_time and before is not None else None,
        )
        return call("TopicService/DeleteRecords", request, wire.DeleteRecordsResponse, _deleted)

    def _then_described(self, topic: str, first: Request[None]) -> Request[TopicDescription]:
        def steps() -> Steps[TopicDescription]:
            yield first
            found: TopicDescription = yield self.describe(topic)
            return found

        return series(steps)


def _text(value: SettingValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(text: str) -> SettingValue:
    """A setting as the type that its text looks like; on the wire all are texts."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return text


def _settings(settings: Mapping[str, str]) -> dict[str, SettingValue]:
    return {name: _value(text) for name, text in settings.items()}


def _topic(one: wire.Topic) -> Topic:
    return Topic(
        name=one.name,
        id=one.id,
        partitions=one.partitions,
        replication=one.replication,
        internal=one.internal,
        settings=_settings(one.settings),
    )


def _description(response: wire.GetTopicResponse) -> TopicDescription:
    one = response.topic
    return TopicDescription(
        name=one.name,
        id=one.id,
        partitions=one.partitions,
        replication=one.replication,
        internal=one.internal,
        settings=_settings(one.settings),
        effective_settings=_settings(response.effective_settings),
        messages=response.messages,
        bytes=response.bytes,
    )


def _partitions(response: wire.ListPartitionsResponse) -> list[Partition]:
    return [
        Partition(
            partition=one.partition,
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            replicas=list(one.replicas),
            in_sync=list(one.in_sync),
            start_offset=one.start_offset,
            end_offset=one.end_offset,
            high_watermark=one.high_watermark,
            bytes=one.bytes,
        )
        for one in response.partitions
    ]


def _deleted(response: wire.DeleteRecordsResponse) -> list[Deleted]:
    return [
        Deleted(partition=one.partition, start_offset=one.offset) for one in response.start_offsets
    ]
