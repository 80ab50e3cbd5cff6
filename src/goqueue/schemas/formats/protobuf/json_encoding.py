"""Protobuf messages as JSON, by the JSON mapping of Protobuf, and as bytes."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message

from goqueue.schemas.formats.interface import Decode, Encode, SchemaViolation
from goqueue.schemas.formats.json_text import read_value
from goqueue.schemas.formats.protobuf.validation import VALUE_DEPTH_MAX


def encoder(descriptor: Descriptor, pool: DescriptorPool) -> Encode:
    """A function from JSON to the bytes of a message; `SchemaViolation` says what does not fit."""
    made: type[Message] = message_factory.GetMessageClass(descriptor)

    def encode(text: bytes) -> bytes:
        value: Any = read_value(text)
        if not isinstance(value, dict) and descriptor.file.package != "google.protobuf":
            raise SchemaViolation("$", f"the message {descriptor.full_name} is an object in JSON")
        try:
            message = json_format.ParseDict(
                value, made(), descriptor_pool=pool, max_recursion_depth=VALUE_DEPTH_MAX
            )
            return message.SerializeToString(deterministic=True)
        except (json_format.ParseError, EncodeError, ValueError, TypeError) as error:
            raise SchemaViolation("$", _plain(error)) from None

    return encode


def decoder(descriptor: Descriptor, pool: DescriptorPool) -> Decode:
    """A function from the bytes of a message to JSON; `SchemaViolation` if they are none."""
    made: type[Message] = message_factory.GetMessageClass(descriptor)

    def decode(payload: bytes | memoryview) -> bytes:
        try:
            message = made.FromString(bytes(payload))
            value = json_format.MessageToDict(
                message, always_print_fields_with_no_presence=True, descriptor_pool=pool
            )
        except (DecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
            reason = f"the payload is no {descriptor.full_name}: {_plain(error)}"
            raise SchemaViolation("$", reason) from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    return decode


def _plain(error: Exception) -> str:
    return str(error).rstrip(".")[:300]
