from goqueue.wire.grpc.messages import messages_pb2 as _messages_pb2
from goqueue.wire.grpc.messages import offset_service_pb2 as _offset_service_pb2
from goqueue.wire.grpc.messages import publish_service_pb2 as _publish_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BeginTransactionRequest(_message.Message):
    __slots__ = ("transactional_id", "timeout_ms")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    timeout_ms: int
    def __init__(self, transactional_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class BeginTransactionResponse(_message.Message):
    __slots__ = ("transaction_id", "transactional_id", "timeout_ms")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    transactional_id: str
    timeout_ms: int
    def __init__(self, transaction_id: _Optional[str] = ..., transactional_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("transaction_id", "transactional_id", "state", "producer_id", "producer_epoch", "timeout_ms", "started_at_ms", "updated_at_ms", "participants")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at_ms: int
    updated_at_ms: int
    participants: _containers.RepeatedCompositeFieldContainer[_messages_pb2.TopicPartition]
    def __init__(self, transaction_id: _Optional[str] = ..., transactional_id: _Optional[str] = ..., state: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., updated_at_ms: _Optional[int] = ..., participants: _Optional[_Iterable[_Union[_messages_pb2.TopicPartition, _Mapping]]] = ...) -> None: ...

class GetTransactionRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class GetTransactionResponse(_message.Message):
    __slots__ = ("transaction", "superseded")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    superseded: bool
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ..., superseded: _Optional[bool] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("page_size", "prefix", "state")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    prefix: str
    state: str
    def __init__(self, page_size: _Optional[int] = ..., prefix: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "total")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[Transaction]
    total: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[Transaction, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class TopicMessage(_message.Message):
    __slots__ = ("topic", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message: _messages_pb2.OutgoingMessage
    def __init__(self, topic: _Optional[str] = ..., message: _Optional[_Union[_messages_pb2.OutgoingMessage, _Mapping]] = ...) -> None: ...

class PublishInTransactionRequest(_message.Message):
    __slots__ = ("transaction_id", "messages")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    messages: _containers.RepeatedCompositeFieldContainer[TopicMessage]
    def __init__(self, transaction_id: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[TopicMessage, _Mapping]]] = ...) -> None: ...

class PublishInTransactionResponse(_message.Message):
    __slots__ = ("report",)
    REPORT_FIELD_NUMBER: _ClassVar[int]
    report: _publish_service_pb2.PublishReport
    def __init__(self, report: _Optional[_Union[_publish_service_pb2.PublishReport, _Mapping]] = ...) -> None: ...

class CommitOffsetsInTransactionRequest(_message.Message):
    __slots__ = ("transaction_id", "group", "offsets", "member_id", "member_epoch")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[_offset_service_pb2.OffsetToCommit]
    member_id: str
    member_epoch: int
    def __init__(self, transaction_id: _Optional[str] = ..., group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[_offset_service_pb2.OffsetToCommit, _Mapping]]] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ...) -> None: ...

class CommitOffsetsInTransactionResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_offset_service_pb2.OffsetError]
    def __init__(self, errors: _Optional[_Iterable[_Union[_offset_service_pb2.OffsetError, _Mapping]]] = ...) -> None: ...

class AckInTransactionRequest(_message.Message):
    __slots__ = ("transaction_id", "group", "receipts")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, transaction_id: _Optional[str] = ..., group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class AckInTransactionResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_messages_pb2.ReceiptError]
    def __init__(self, errors: _Optional[_Iterable[_Union[_messages_pb2.ReceiptError, _Mapping]]] = ...) -> None: ...

class CommitTransactionRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class CommitTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AbortTransactionRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class AbortTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
