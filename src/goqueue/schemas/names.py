"""Names of subjects, and the contexts they may be qualified with.

A context is a separate name space, with its own subjects, ids and settings.
`:.sales:orders-value` is the subject `orders-value` of the context `.sales`; a name without such a
prefix is in the default context, which is called `.`. A name that ends with its context, such as
`:.sales:`, means the context itself in calls about settings.
"""

from __future__ import annotations

from typing import NamedTuple

from goqueue.model.errors import SchemaRefusal, SchemaRefused
from goqueue.model.tenants import ContextName, Text, plain_name, prefix_of

CONTEXT_DEFAULT = "."
CONTEXT_EVERYWHERE = ".__GLOBAL"  # its settings apply if neither subject nor context has any
ALL_CONTEXTS = ":*:"
NAME_LENGTH_MAX = 1000

_RESERVED = frozenset({"__GLOBAL", "__EMPTY"})


class Subject(NamedTuple):
    """A subject in its context; without a name it means the context."""

    context: ContextName
    name: Text

    def __str__(self) -> str:
        return f"{context_prefix(self.context)}{self.name}"

    @property
    def is_default_context(self) -> bool:
        """Whether it means the default context, which each tenant has."""
        return plain_context(self.context) == CONTEXT_DEFAULT and not self.name


EVERYTHING = Subject(CONTEXT_DEFAULT, "")


def plain_context(context: str) -> str:
    """Return a context as the clients of its tenant see it: `.` for `.~acme~`."""
    return f".{plain_name(context[1:])}"


def default_context(name: str) -> str:
    """Return the default context of the tenant to which a topic or group belongs."""
    return f".{prefix_of(name)}"


def is_same_tenant(context: str, other: str) -> bool:
    return prefix_of(context[1:]) == prefix_of(other[1:])


def of_whole_registry(context: str) -> tuple[Subject, Subject]:
    """Return what means the whole registry of a tenant: its default context, and all of them."""
    default = f".{prefix_of(context[1:])}"
    return Subject(default, ""), Subject(default + CONTEXT_EVERYWHERE[1:], "")


def context_prefix(context: str) -> str:
    """The prefix of the names of a context's subjects."""
    return "" if context == CONTEXT_DEFAULT else f":{context}:"


def read_subject(text: str, *, within: str = CONTEXT_DEFAULT) -> Subject:
    """Parse a name. One without a context is in `within`."""
    if not text.startswith(":."):
        return Subject(within, text)
    context, _, name = text[1:].partition(":")
    return Subject(context, name)


def check_subject(subject: Subject, *, is_for_settings: bool = False) -> None:
    """Refuse an invalid name of a subject, or of a context in calls about settings."""
    text = str(subject)
    if len(text) > NAME_LENGTH_MAX:
        raise _invalid(text, f"it has more than {NAME_LENGTH_MAX} characters")
    if any(ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0 for letter in text):
        raise _invalid(text, "it has control characters")
    if subject.name in _RESERVED:
        raise _invalid(text, "that word is reserved")
    if not is_for_settings and not subject.name:
        raise _invalid(text, "it is empty")
    if not is_for_settings and plain_context(subject.context) == CONTEXT_EVERYWHERE:
        raise _invalid(text, "that context has settings only")


def matches_prefix(subject: Subject, prefix: str) -> bool:
    """Whether a listing with this prefix includes the subject; `:*:` means every context."""
    if prefix.startswith(ALL_CONTEXTS):
        return subject.name.startswith(prefix.removeprefix(ALL_CONTEXTS))
    return str(subject).startswith(prefix)


def _invalid(text: str, reason: str) -> SchemaRefused:
    return SchemaRefused(
        SchemaRefusal.INVALID_SUBJECT,
        f"The specified subject '{text[:100]}' is not a valid subject: {reason}.",
    )
