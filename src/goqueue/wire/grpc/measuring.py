"""What the metrics of a call need to know of its messages: the trace, and the codes of errors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from goqueue.wire.grpc.messages import messages_pb2 as shared

TRACE_HEADERS = frozenset(("traceparent", "AWSTraceHeader"))

# The fields that lead to errors, each with those of its messages; without any, it is an error.
_Plan: TypeAlias = tuple[tuple[str, bool, "_Plan"], ...]


def trace_of(messages: Sequence[shared.OutgoingMessage]) -> bytes:
    """Return the header of the first message that names its trace; empty if there is none."""
    if not messages:
        return b""
    return next((one.value for one in messages[0].headers if one.name in TRACE_HEADERS), b"")


def codes_in(response: Message) -> set[str]:
    """Return the codes of the errors in a response, of parts of the request that have failed."""
    found: set[str] = set()
    _find(response, _plan_of(response.DESCRIPTOR), found)
    return found


def _find(message: Any, plan: _Plan, found: set[str]) -> None:
    for name, is_repeated, inner in plan:
        if not is_repeated and not message.HasField(name):
            continue
        content = getattr(message, name)
        for one in content if is_repeated else (content,):
            if inner:
                _find(one, inner, found)
            else:
                found.add(one.reason)


@cache  # of the messages of the API, of which there are some hundred
def _plan_of(kind: Descriptor) -> _Plan:
    plan: list[tuple[str, bool, _Plan]] = []
    for field in kind.fields:
        inner = field.message_type
        if inner is None:
            continue
        nested = _plan_of(inner)
        if nested or inner is shared.Error.DESCRIPTOR:
            plan.append((field.name, field.is_repeated, nested))
    return tuple(plan)
