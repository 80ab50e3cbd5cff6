from goqueue.wire.grpc.messages import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AckRequest(_message.Message):
    __slots__ = ("group", "receipts")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_messages_pb2.ReceiptError]
    def __init__(self, errors: _Optional[_Iterable[_Union[_messages_pb2.ReceiptError, _Mapping]]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("group", "receipts", "delay_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    def __init__(self, group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class NackResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_messages_pb2.ReceiptError]
    def __init__(self, errors: _Optional[_Iterable[_Union[_messages_pb2.ReceiptError, _Mapping]]] = ...) -> None: ...

class RejectRequest(_message.Message):
    __slots__ = ("group", "receipts", "reason")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class RejectResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_messages_pb2.ReceiptError]
    def __init__(self, errors: _Optional[_Iterable[_Union[_messages_pb2.ReceiptError, _Mapping]]] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("group", "receipts", "visibility_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    visibility_ms: int
    def __init__(self, group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class ExtendResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_messages_pb2.ReceiptError]
    def __init__(self, errors: _Optional[_Iterable[_Union[_messages_pb2.ReceiptError, _Mapping]]] = ...) -> None: ...
