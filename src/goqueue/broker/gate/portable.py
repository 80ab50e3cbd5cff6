"""Arguments and answers of operations as other nodes get them, also nodes of an older release.

Within a feature level an argument with a default may be added at the end, and a field with a
default at the end of an answer. A sender leaves out arguments at their defaults, so a node without
them can still read the rest. `Levelled` values are sent to an older node as that node knows them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import msgspec

from goqueue.broker.gate.levels import argument_level, value_level
from goqueue.broker.gate.operation import Arguments
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import GoQueueError, UpgradeInProgress
from goqueue.model.errors.refusals import Refusal, error_of, refusal_of
from goqueue.model.support import LEVEL_MAX

_FIXED_ARRAY, _FIXED_ARRAY_MAX, _ARRAY_16 = 0x90, 0x9F, 0xDC

_AWAITABLE = (Promise, Awaitable, Coroutine)


@runtime_checkable
class Packed(Protocol):
    """A type that is not plain data, and defines its own encoding."""

    def pack(self) -> Any: ...

    @classmethod
    def unpack(cls, packed: Any) -> Any: ...

    PACKED: ClassVar[Any]  # the type of what `pack` returns


@runtime_checkable
class Levelled(Protocol):
    """A type that has grown since an earlier feature level."""

    def at_level(self, level: int) -> Any:
        """Return the value as a node of this level expects it."""


class Portable:
    """Codecs for one operation, built from the annotations of its method at first use."""

    def __init__(self, method: Callable[..., Any], name: str = "") -> None:
        """`name` is that of the operation."""
        hints = get_type_hints(method)
        parameters = [
            one
            for one in inspect.signature(method).parameters.values()
            if one.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        self.waits = any(hints[one.name] is Cancellation for one in parameters)
        self._names = [one.name for one in parameters if hints[one.name] is not Cancellation]
        self._levels = [argument_level(name, one) for one in self._names]
        self._name = name
        # A tuple has the order of the declaration.
        self._kinds = tuple(hints[one] for one in self._names)
        self._defaults = {
            one.name: one.default
            for one in parameters
            if one.default is not inspect.Parameter.empty
        }
        self._arguments: dict[int, msgspec.msgpack.Decoder[Any]] = {}  # by their number
        self._answer = msgspec.msgpack.Decoder(awaited(hints["return"]), dec_hook=_unpack)

    def encode_arguments(self, arguments: Arguments, level: int = LEVEL_MAX) -> bytes:
        """Encode arguments for a node of this level; raise UpgradeInProgress if it lacks one."""
        given = {**self._defaults, **arguments}
        values = [given[name] for name in self._names]
        if level < LEVEL_MAX:
            return _encode(self._at_level(values, level))
        while values and self._is_default(len(values) - 1, values[-1]):
            values.pop()
        return _encode(values)

    def _at_level(self, values: list[Any], level: int) -> list[Any]:
        """Return all arguments that a node of an older release knows: it expects every one."""
        for number, (since, value) in enumerate(zip(self._levels, values, strict=True)):
            since = max(since, value_level(self._name, self._names[number], value))
            if since > level and not self._is_default(number, value):
                raise UpgradeInProgress(
                    f"{self._names[number]} of {self._name} needs feature level {since}, which "
                    "the node that must answer does not support yet; retry after its upgrade."
                )
        known = [one for one, since in zip(values, self._levels, strict=True) if since <= level]
        return [_levelled(one, level) for one in known]

    def _is_default(self, number: int, value: Any) -> bool:
        name = self._names[number]
        return name in self._defaults and bool(self._defaults[name] == value)

    def decode_arguments(self, data: memoryview) -> dict[str, Any]:
        """Decode arguments; those that a sender has left out have their defaults."""
        count = _array_length(data)
        if count > len(self._names):
            raise UpgradeInProgress(
                f"The arguments of {self._name} are those of a later release; retry after the "
                "upgrade of this node."
            )
        decoder = self._arguments.get(count)
        if decoder is None:
            kinds = self._kinds[:count]
            decoder = msgspec.msgpack.Decoder(tuple[kinds], dec_hook=_unpack)  # type: ignore[valid-type]
            self._arguments[count] = decoder
        given = dict(zip(self._names, decoder.decode(data), strict=False))
        missing = [name for name in self._names[count:] if name not in self._defaults]
        if missing:
            raise msgspec.ValidationError(f"the argument {missing[0]} is missing")
        return {**{name: self._defaults[name] for name in self._names[count:]}, **given}

    def encode_answer(self, answer: Any, level: int = LEVEL_MAX) -> bytes:
        return _encode(answer if level == LEVEL_MAX else _levelled(answer, level))

    def decode_answer(self, data: memoryview) -> Any:
        return self._answer.decode(data)


def _array_length(data: memoryview) -> int:
    """Return the number of values in an array."""
    head = data[0] if len(data) else -1
    if _FIXED_ARRAY <= head <= _FIXED_ARRAY_MAX:
        return head - _FIXED_ARRAY
    if head == _ARRAY_16 and len(data) >= 3:
        return int.from_bytes(data[1:3], "big")
    raise msgspec.ValidationError("arguments must be an array")


def _levelled(value: Any, level: int) -> Any:
    """Return a value with everything in it as a node of this level expects it."""
    if isinstance(value, Levelled):
        return value.at_level(level)
    if isinstance(value, dict):
        return {key: _levelled(one, level) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_levelled(one, level) for one in value]
    return value


def awaited(kind: Any) -> Any:
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


_encode_into = msgspec.msgpack.Encoder(enc_hook=_pack).encode_into


def _encode(value: Any) -> bytes:
    """Encode what may be as large as a client chooses.

    Without memory for it this raises MemoryError; the encoder's own buffer, when it cannot grow,
    ends the process instead.
    """
    buffer = bytearray()
    _encode_into(value, buffer)
    return bytes(buffer)
