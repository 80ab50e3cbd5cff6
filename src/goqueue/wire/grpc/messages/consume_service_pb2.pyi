from goqueue.wire.grpc.messages import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Start(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_UNSPECIFIED: _ClassVar[Start]
    START_EARLIEST: _ClassVar[Start]
    START_LATEST: _ClassVar[Start]
START_UNSPECIFIED: Start
START_EARLIEST: Start
START_LATEST: Start

class SubscribeRequest(_message.Message):
    __slots__ = ("group", "topics", "topic_pattern", "instance_id", "start", "messages_max", "assignor", "member_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    instance_id: str
    start: Start
    messages_max: int
    assignor: str
    member_id: str
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., instance_id: _Optional[str] = ..., start: _Optional[_Union[Start, str]] = ..., messages_max: _Optional[int] = ..., assignor: _Optional[str] = ..., member_id: _Optional[str] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("member_id", "member_epoch", "is_assigned", "assignment", "messages", "resets", "unreadable")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RESETS_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    member_epoch: int
    is_assigned: bool
    assignment: _containers.RepeatedCompositeFieldContainer[_messages_pb2.TopicPartitions]
    messages: _containers.RepeatedCompositeFieldContainer[_messages_pb2.StoredMessage]
    resets: _containers.RepeatedCompositeFieldContainer[PositionReset]
    unreadable: _containers.RepeatedCompositeFieldContainer[_messages_pb2.UnreadableRange]
    def __init__(self, member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., is_assigned: _Optional[bool] = ..., assignment: _Optional[_Iterable[_Union[_messages_pb2.TopicPartitions, _Mapping]]] = ..., messages: _Optional[_Iterable[_Union[_messages_pb2.StoredMessage, _Mapping]]] = ..., resets: _Optional[_Iterable[_Union[PositionReset, _Mapping]]] = ..., unreadable: _Optional[_Iterable[_Union[_messages_pb2.UnreadableRange, _Mapping]]] = ...) -> None: ...

class PositionReset(_message.Message):
    __slots__ = ("topic", "partition", "offset_before", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BEFORE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset_before: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset_before: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ReceivedMessage(_message.Message):
    __slots__ = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers", "receipt", "priority", "attempt", "leased_until_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[_messages_pb2.Header]
    receipt: str
    priority: _messages_pb2.Priority
    attempt: int
    leased_until_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[_messages_pb2.Header, _Mapping]]] = ..., receipt: _Optional[str] = ..., priority: _Optional[_Union[_messages_pb2.Priority, str]] = ..., attempt: _Optional[int] = ..., leased_until_ms: _Optional[int] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("start", "credit", "number", "ack", "nack", "reject", "extend", "stop")
    START_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    start: ReceiveStart
    credit: int
    number: int
    ack: _containers.RepeatedScalarFieldContainer[str]
    nack: _containers.RepeatedCompositeFieldContainer[Nack]
    reject: _containers.RepeatedCompositeFieldContainer[Reject]
    extend: _containers.RepeatedCompositeFieldContainer[Extend]
    stop: bool
    def __init__(self, start: _Optional[_Union[ReceiveStart, _Mapping]] = ..., credit: _Optional[int] = ..., number: _Optional[int] = ..., ack: _Optional[_Iterable[str]] = ..., nack: _Optional[_Iterable[_Union[Nack, _Mapping]]] = ..., reject: _Optional[_Iterable[_Union[Reject, _Mapping]]] = ..., extend: _Optional[_Iterable[_Union[Extend, _Mapping]]] = ..., stop: _Optional[bool] = ...) -> None: ...

class ReceiveStart(_message.Message):
    __slots__ = ("group", "topic", "consumer", "visibility_ms", "messages_max")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    consumer: str
    visibility_ms: int
    messages_max: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., consumer: _Optional[str] = ..., visibility_ms: _Optional[int] = ..., messages_max: _Optional[int] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("receipts", "delay_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class Reject(_message.Message):
    __slots__ = ("receipts", "reason")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Extend(_message.Message):
    __slots__ = ("receipts", "visibility_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    visibility_ms: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("messages", "settlements")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ReceivedMessage]
    settlements: _containers.RepeatedCompositeFieldContainer[Settlement]
    def __init__(self, messages: _Optional[_Iterable[_Union[ReceivedMessage, _Mapping]]] = ..., settlements: _Optional[_Iterable[_Union[Settlement, _Mapping]]] = ...) -> None: ...

class Settlement(_message.Message):
    __slots__ = ("number", "accepted", "errors")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    number: int
    accepted: int
    errors: _containers.RepeatedCompositeFieldContainer[_messages_pb2.ReceiptError]
    def __init__(self, number: _Optional[int] = ..., accepted: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[_messages_pb2.ReceiptError, _Mapping]]] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("group", "topic", "consumer", "messages_max", "wait_ms", "visibility_ms", "ack")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    consumer: str
    messages_max: int
    wait_ms: int
    visibility_ms: int
    ack: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., consumer: _Optional[str] = ..., messages_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., visibility_ms: _Optional[int] = ..., ack: _Optional[_Iterable[str]] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("messages", "errors")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ReceivedMessage]
    errors: _containers.RepeatedCompositeFieldContainer[_messages_pb2.ReceiptError]
    def __init__(self, messages: _Optional[_Iterable[_Union[ReceivedMessage, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[_messages_pb2.ReceiptError, _Mapping]]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("start", "time_ms", "offset")
    START_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    start: Start
    time_ms: int
    offset: int
    def __init__(self, start: _Optional[_Union[Start, str]] = ..., time_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("topic", "partition", "cursor", "messages_max", "wait_ms", "isolation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    cursor: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    messages_max: int
    wait_ms: int
    isolation: _messages_pb2.Isolation
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., cursor: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ..., messages_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., isolation: _Optional[_Union[_messages_pb2.Isolation, str]] = ..., **kwargs) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("messages", "cursor", "unreadable")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_messages_pb2.StoredMessage]
    cursor: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    unreadable: _containers.RepeatedCompositeFieldContainer[_messages_pb2.UnreadableRange]
    def __init__(self, messages: _Optional[_Iterable[_Union[_messages_pb2.StoredMessage, _Mapping]]] = ..., cursor: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ..., unreadable: _Optional[_Iterable[_Union[_messages_pb2.UnreadableRange, _Mapping]]] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("topic", "partition", "cursor", "messages_max", "isolation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    cursor: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    messages_max: int
    isolation: _messages_pb2.Isolation
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., cursor: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ..., messages_max: _Optional[int] = ..., isolation: _Optional[_Union[_messages_pb2.Isolation, str]] = ..., **kwargs) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("messages", "cursor", "unreadable")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_messages_pb2.StoredMessage]
    cursor: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    unreadable: _containers.RepeatedCompositeFieldContainer[_messages_pb2.UnreadableRange]
    def __init__(self, messages: _Optional[_Iterable[_Union[_messages_pb2.StoredMessage, _Mapping]]] = ..., cursor: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ..., unreadable: _Optional[_Iterable[_Union[_messages_pb2.UnreadableRange, _Mapping]]] = ...) -> None: ...
