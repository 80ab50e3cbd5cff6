from goqueue.wire.grpc.messages import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublishRequest(_message.Message):
    __slots__ = ("topic", "messages", "acks")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[_messages_pb2.OutgoingMessage]
    acks: _messages_pb2.Acks
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_messages_pb2.OutgoingMessage, _Mapping]]] = ..., acks: _Optional[_Union[_messages_pb2.Acks, str]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("report",)
    REPORT_FIELD_NUMBER: _ClassVar[int]
    report: PublishReport
    def __init__(self, report: _Optional[_Union[PublishReport, _Mapping]] = ...) -> None: ...

class PublishReport(_message.Message):
    __slots__ = ("partitions", "offsets", "scheduled", "errors")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    scheduled: _containers.RepeatedCompositeFieldContainer[ScheduledMessage]
    errors: _containers.RepeatedCompositeFieldContainer[PublishError]
    def __init__(self, partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., scheduled: _Optional[_Iterable[_Union[ScheduledMessage, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[PublishError, _Mapping]]] = ...) -> None: ...

class ScheduledMessage(_message.Message):
    __slots__ = ("index", "schedule_id", "deliver_at_ms")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_ID_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    index: int
    schedule_id: str
    deliver_at_ms: int
    def __init__(self, index: _Optional[int] = ..., schedule_id: _Optional[str] = ..., deliver_at_ms: _Optional[int] = ...) -> None: ...

class PublishError(_message.Message):
    __slots__ = ("index", "error")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    index: int
    error: _messages_pb2.Error
    def __init__(self, index: _Optional[int] = ..., error: _Optional[_Union[_messages_pb2.Error, _Mapping]] = ...) -> None: ...

class PublishStreamRequest(_message.Message):
    __slots__ = ("number", "topic", "messages", "acks")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    number: int
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[_messages_pb2.OutgoingMessage]
    acks: _messages_pb2.Acks
    def __init__(self, number: _Optional[int] = ..., topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_messages_pb2.OutgoingMessage, _Mapping]]] = ..., acks: _Optional[_Union[_messages_pb2.Acks, str]] = ...) -> None: ...

class PublishStreamResponse(_message.Message):
    __slots__ = ("number", "report", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    report: PublishReport
    error: _messages_pb2.Error
    def __init__(self, number: _Optional[int] = ..., report: _Optional[_Union[PublishReport, _Mapping]] = ..., error: _Optional[_Union[_messages_pb2.Error, _Mapping]] = ...) -> None: ...
