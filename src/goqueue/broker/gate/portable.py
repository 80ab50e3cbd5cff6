"""Encodes the arguments and the answer of an operation for another node."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ClassVar, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import msgspec

from goqueue.loop.cancellation import Cancellation
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.model.errors.refusals import Refusal, error_of, refusal_of

_AWAITABLE = (Promise, Awaitable, Coroutine)


@runtime_checkable
class Packed(Protocol):
    """A type that is not plain data, and defines its own encoding."""

    def pack(self) -> Any: ...

    @classmethod
    def unpack(cls, packed: Any) -> Any: ...

    PACKED: ClassVar[Any]  # the type of what `pack` returns


class Portable:
    """Codecs for one operation, built from the annotations of its method at first use."""

    def __init__(self, method: Callable[..., Any]) -> None:
        hints = get_type_hints(method)
        parameters = [
            one
            for one in inspect.signature(method).parameters.values()
            if one.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        self.waits = any(hints[one.name] is Cancellation for one in parameters)
        self._names = [one.name for one in parameters if hints[one.name] is not Cancellation]
        # A tuple has the order of the declaration; every argument is sent.
        kinds = tuple(hints[name] for name in self._names)
        self._defaults = {
            one.name: one.default
            for one in parameters
            if one.default is not inspect.Parameter.empty
        }
        self._arguments = msgspec.msgpack.Decoder(tuple[kinds], dec_hook=_unpack)  # type: ignore[valid-type]
        self._answer = msgspec.msgpack.Decoder(_awaited(hints["return"]), dec_hook=_unpack)

    def encode_arguments(self, arguments: Mapping[str, Any]) -> bytes:
        given = {**self._defaults, **arguments}
        return _encode([given[name] for name in self._names])

    def decode_arguments(self, data: memoryview) -> dict[str, Any]:
        return dict(zip(self._names, self._arguments.decode(data), strict=True))

    def encode_answer(self, answer: Any) -> bytes:
        return _encode(answer)

    def decode_answer(self, data: memoryview) -> Any:
        return self._answer.decode(data)


def _awaited(kind: Any) -> Any:
    """Return the type of an answer, whether the method returns it or a promise of it."""
    if get_origin(kind) in _AWAITABLE:
        return get_args(kind)[-1]
    return kind


def _pack(value: Any) -> Any:
    if isinstance(value, GoQueueError):
        return refusal_of(value)
    if isinstance(value, Packed):
        return value.pack()
    raise TypeError(f"{type(value).__name__} cannot be sent to another node")


def _unpack(kind: type, value: Any) -> Any:
    if issubclass(kind, GoQueueError):
        return error_of(msgspec.convert(value, Refusal))
    return kind.unpack(msgspec.convert(value, kind.PACKED, dec_hook=_unpack))  # type: ignore[attr-defined]


_encode = msgspec.msgpack.Encoder(enc_hook=_pack).encode
