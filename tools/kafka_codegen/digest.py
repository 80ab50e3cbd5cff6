"""The definitions in the words of this project, for tests that need to know what a message is."""

from __future__ import annotations

from typing import Any

from tools.kafka_codegen.definitions import Field, Message, StructDefinition, Versions
from tools.kafka_codegen.layout import attribute_name, fields_used


def digest_of(messages: list[Message]) -> dict[str, Any]:
    """Describe messages by name: their versions, and their fields as nested lists."""
    return {
        message.name: {
            "versions": _range(message.versions),
            "flexible": _range(message.flexible),
            "fields": _fields(message, message.root),
        }
        for message in messages
    }


def _fields(message: Message, struct: StructDefinition) -> list[dict[str, Any]]:
    return [_field(message, field) for field in fields_used(message, struct)]


def _field(message: Message, field: Field) -> dict[str, Any]:
    description: dict[str, Any] = {
        "name": attribute_name(field),
        "type": ("[]" if field.is_array else "") + ("struct" if field.is_struct else field.type),
        "versions": _range(field.versions),
    }
    if field.nullable.first <= field.nullable.last:
        description["nullable"] = _range(field.nullable)
    if field.tag is not None:
        description["tagged"] = _range(field.tagged)
        description["tag"] = field.tag
    if field.is_ignorable:
        description["ignorable"] = True
    if field.flexible is not None:
        description["flexible"] = _range(field.flexible)
    if field.is_struct:
        description["fields"] = _fields(message, message.structs[field.type])
    return description


def _range(versions: Versions) -> list[int]:
    return [versions.first, versions.last]
