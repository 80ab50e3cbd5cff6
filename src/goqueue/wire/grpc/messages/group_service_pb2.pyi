from goqueue.wire.grpc.messages import consume_service_pb2 as _consume_service_pb2
from goqueue.wire.grpc.messages import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_KIND_UNSPECIFIED: _ClassVar[GroupKind]
    GROUP_KIND_STREAM: _ClassVar[GroupKind]
    GROUP_KIND_QUEUE: _ClassVar[GroupKind]
GROUP_KIND_UNSPECIFIED: GroupKind
GROUP_KIND_STREAM: GroupKind
GROUP_KIND_QUEUE: GroupKind

class Group(_message.Message):
    __slots__ = ("name", "kind", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: GroupKind
    state: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[GroupKind, str]] = ..., state: _Optional[str] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "prefix", "kind")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    prefix: str
    kind: GroupKind
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., prefix: _Optional[str] = ..., kind: _Optional[_Union[GroupKind, str]] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    next_page_token: str
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GetGroupResponse(_message.Message):
    __slots__ = ("group", "members", "topics", "settings", "epoch", "assignor")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    group: Group
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    topics: _containers.RepeatedScalarFieldContainer[str]
    settings: _containers.ScalarMap[str, str]
    epoch: int
    assignor: str
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., topics: _Optional[_Iterable[str]] = ..., settings: _Optional[_Mapping[str, str]] = ..., epoch: _Optional[int] = ..., assignor: _Optional[str] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_host", "member_epoch", "subscribed_topics", "topic_pattern", "assigned")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_host: str
    member_epoch: int
    subscribed_topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    assigned: _containers.RepeatedCompositeFieldContainer[_messages_pb2.TopicPartitions]
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_host: _Optional[str] = ..., member_epoch: _Optional[int] = ..., subscribed_topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., assigned: _Optional[_Iterable[_Union[_messages_pb2.TopicPartitions, _Mapping]]] = ...) -> None: ...

class PutQueueGroupRequest(_message.Message):
    __slots__ = ("group", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    group: str
    settings: _containers.ScalarMap[str, str]
    def __init__(self, group: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PutQueueGroupResponse(_message.Message):
    __slots__ = ("group", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    group: Group
    settings: _containers.ScalarMap[str, str]
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLagRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GetLagResponse(_message.Message):
    __slots__ = ("kind", "lag", "partitions")
    KIND_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    kind: GroupKind
    lag: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionLag]
    def __init__(self, kind: _Optional[_Union[GroupKind, str]] = ..., lag: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionLag, _Mapping]]] = ...) -> None: ...

class PartitionLag(_message.Message):
    __slots__ = ("topic", "partition", "offset", "end_offset", "lag")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    end_offset: int
    lag: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class GetQueueStatsRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class GetQueueStatsResponse(_message.Message):
    __slots__ = ("ready", "in_flight", "retrying", "parked", "dead_lettering")
    READY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERING_FIELD_NUMBER: _ClassVar[int]
    ready: int
    in_flight: int
    retrying: int
    parked: int
    dead_lettering: int
    def __init__(self, ready: _Optional[int] = ..., in_flight: _Optional[int] = ..., retrying: _Optional[int] = ..., parked: _Optional[int] = ..., dead_lettering: _Optional[int] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("group", "topic", "partition", "offset", "messages_max")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    partition: int
    offset: int
    messages_max: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., messages_max: _Optional[int] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PeekedMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[PeekedMessage, _Mapping]]] = ...) -> None: ...

class PeekedMessage(_message.Message):
    __slots__ = ("message", "priority", "state", "attempts", "consumer", "leased_until_ms", "due_at_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    LEASED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    message: _messages_pb2.StoredMessage
    priority: _messages_pb2.Priority
    state: str
    attempts: int
    consumer: str
    leased_until_ms: int
    due_at_ms: int
    def __init__(self, message: _Optional[_Union[_messages_pb2.StoredMessage, _Mapping]] = ..., priority: _Optional[_Union[_messages_pb2.Priority, str]] = ..., state: _Optional[str] = ..., attempts: _Optional[int] = ..., consumer: _Optional[str] = ..., leased_until_ms: _Optional[int] = ..., due_at_ms: _Optional[int] = ...) -> None: ...

class RewindRequest(_message.Message):
    __slots__ = ("group", "topic", "to", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    to: _consume_service_pb2.Position
    offsets: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., to: _Optional[_Union[_consume_service_pb2.Position, _Mapping]] = ..., offsets: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ...) -> None: ...

class RewindResponse(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    def __init__(self, positions: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    def __init__(self, positions: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ...) -> None: ...
