from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterResponse(_message.Message):
    __slots__ = ("cluster_id", "node", "controller", "nodes", "version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node: int
    controller: int
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    version: str
    def __init__(self, cluster_id: _Optional[str] = ..., node: _Optional[int] = ..., controller: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., version: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "addresses", "rack", "available")
    class AddressesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    id: int
    addresses: _containers.ScalarMap[str, str]
    rack: str
    available: bool
    def __init__(self, id: _Optional[int] = ..., addresses: _Optional[_Mapping[str, str]] = ..., rack: _Optional[str] = ..., available: _Optional[bool] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSessionResponse(_message.Message):
    __slots__ = ("principal", "tenant", "mechanism", "client_host")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    principal: str
    tenant: str
    mechanism: str
    client_host: str
    def __init__(self, principal: _Optional[str] = ..., tenant: _Optional[str] = ..., mechanism: _Optional[str] = ..., client_host: _Optional[str] = ...) -> None: ...
