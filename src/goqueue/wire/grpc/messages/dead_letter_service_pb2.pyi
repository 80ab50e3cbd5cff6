from goqueue.wire.grpc.messages import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LetterFilter(_message.Message):
    __slots__ = ("reason", "group", "key", "from_ms", "until_ms", "header")
    REASON_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    reason: str
    group: str
    key: bytes
    from_ms: int
    until_ms: int
    header: _messages_pb2.Header
    def __init__(self, reason: _Optional[str] = ..., group: _Optional[str] = ..., key: _Optional[bytes] = ..., from_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., header: _Optional[_Union[_messages_pb2.Header, _Mapping]] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("message", "reason", "attempts", "died_at_ms", "source_topic", "source_partition", "source_offset", "group")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DIED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    message: _messages_pb2.StoredMessage
    reason: str
    attempts: int
    died_at_ms: int
    source_topic: str
    source_partition: int
    source_offset: int
    group: str
    def __init__(self, message: _Optional[_Union[_messages_pb2.StoredMessage, _Mapping]] = ..., reason: _Optional[str] = ..., attempts: _Optional[int] = ..., died_at_ms: _Optional[int] = ..., source_topic: _Optional[str] = ..., source_partition: _Optional[int] = ..., source_offset: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "dead_letter_topic", "filter", "page_size", "cursor")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    dead_letter_topic: str
    filter: LetterFilter
    page_size: int
    cursor: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    def __init__(self, topic: _Optional[str] = ..., dead_letter_topic: _Optional[str] = ..., filter: _Optional[_Union[LetterFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., cursor: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("letters", "cursor", "total", "unreadable")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    cursor: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    total: int
    unreadable: _containers.RepeatedCompositeFieldContainer[_messages_pb2.UnreadableRange]
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., cursor: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ..., total: _Optional[int] = ..., unreadable: _Optional[_Iterable[_Union[_messages_pb2.UnreadableRange, _Mapping]]] = ...) -> None: ...

class RedriveOrder(_message.Message):
    __slots__ = ("filter", "letters", "messages_max", "rate_per_s", "keep_copy", "target_topic")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    RATE_PER_S_FIELD_NUMBER: _ClassVar[int]
    KEEP_COPY_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOPIC_FIELD_NUMBER: _ClassVar[int]
    filter: LetterFilter
    letters: _containers.RepeatedCompositeFieldContainer[_messages_pb2.PartitionOffset]
    messages_max: int
    rate_per_s: int
    keep_copy: bool
    target_topic: str
    def __init__(self, filter: _Optional[_Union[LetterFilter, _Mapping]] = ..., letters: _Optional[_Iterable[_Union[_messages_pb2.PartitionOffset, _Mapping]]] = ..., messages_max: _Optional[int] = ..., rate_per_s: _Optional[int] = ..., keep_copy: _Optional[bool] = ..., target_topic: _Optional[str] = ...) -> None: ...

class Redrive(_message.Message):
    __slots__ = ("id", "topic", "dead_letter_topic", "state", "moved", "passed_over", "failed", "remaining", "created_at_ms", "ended_at_ms", "problem")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    dead_letter_topic: str
    state: str
    moved: int
    passed_over: int
    failed: int
    remaining: int
    created_at_ms: int
    ended_at_ms: int
    problem: str
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., dead_letter_topic: _Optional[str] = ..., state: _Optional[str] = ..., moved: _Optional[int] = ..., passed_over: _Optional[int] = ..., failed: _Optional[int] = ..., remaining: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class StartRedriveRequest(_message.Message):
    __slots__ = ("topic", "dead_letter_topic", "order")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    dead_letter_topic: str
    order: RedriveOrder
    def __init__(self, topic: _Optional[str] = ..., dead_letter_topic: _Optional[str] = ..., order: _Optional[_Union[RedriveOrder, _Mapping]] = ...) -> None: ...

class StartRedriveResponse(_message.Message):
    __slots__ = ("redrive",)
    REDRIVE_FIELD_NUMBER: _ClassVar[int]
    redrive: Redrive
    def __init__(self, redrive: _Optional[_Union[Redrive, _Mapping]] = ...) -> None: ...

class PreviewRedriveRequest(_message.Message):
    __slots__ = ("topic", "dead_letter_topic", "order")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    dead_letter_topic: str
    order: RedriveOrder
    def __init__(self, topic: _Optional[str] = ..., dead_letter_topic: _Optional[str] = ..., order: _Optional[_Union[RedriveOrder, _Mapping]] = ...) -> None: ...

class PreviewRedriveResponse(_message.Message):
    __slots__ = ("matching", "passed_over", "is_complete", "letters")
    MATCHING_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    matching: int
    passed_over: int
    is_complete: bool
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    def __init__(self, matching: _Optional[int] = ..., passed_over: _Optional[int] = ..., is_complete: _Optional[bool] = ..., letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ...) -> None: ...

class ListRedrivesRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListRedrivesResponse(_message.Message):
    __slots__ = ("redrives",)
    REDRIVES_FIELD_NUMBER: _ClassVar[int]
    redrives: _containers.RepeatedCompositeFieldContainer[Redrive]
    def __init__(self, redrives: _Optional[_Iterable[_Union[Redrive, _Mapping]]] = ...) -> None: ...

class GetRedriveRequest(_message.Message):
    __slots__ = ("topic", "id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    id: str
    def __init__(self, topic: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class GetRedriveResponse(_message.Message):
    __slots__ = ("redrive",)
    REDRIVE_FIELD_NUMBER: _ClassVar[int]
    redrive: Redrive
    def __init__(self, redrive: _Optional[_Union[Redrive, _Mapping]] = ...) -> None: ...

class PauseRedriveRequest(_message.Message):
    __slots__ = ("topic", "id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    id: str
    def __init__(self, topic: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class PauseRedriveResponse(_message.Message):
    __slots__ = ("redrive",)
    REDRIVE_FIELD_NUMBER: _ClassVar[int]
    redrive: Redrive
    def __init__(self, redrive: _Optional[_Union[Redrive, _Mapping]] = ...) -> None: ...

class ResumeRedriveRequest(_message.Message):
    __slots__ = ("topic", "id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    id: str
    def __init__(self, topic: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class ResumeRedriveResponse(_message.Message):
    __slots__ = ("redrive",)
    REDRIVE_FIELD_NUMBER: _ClassVar[int]
    redrive: Redrive
    def __init__(self, redrive: _Optional[_Union[Redrive, _Mapping]] = ...) -> None: ...

class CancelRedriveRequest(_message.Message):
    __slots__ = ("topic", "id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    id: str
    def __init__(self, topic: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class CancelRedriveResponse(_message.Message):
    __slots__ = ("redrive",)
    REDRIVE_FIELD_NUMBER: _ClassVar[int]
    redrive: Redrive
    def __init__(self, redrive: _Optional[_Union[Redrive, _Mapping]] = ...) -> None: ...
