"""The name space of a tenant: how its clients call what the broker has under a longer name.

`inward` turns a text of a client into that of the broker, by the kind of name it is; `outward` is
the reverse, and refuses names of others. Subjects have their tenant in the context, because the
registry keeps contexts apart: the default context `.` of `acme` is `.~acme~`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from goqueue.model.access import (
    ANY_RESOURCE,
    ROLE_PREFIX,
    Acl,
    PatternKind,
    Resource,
    ResourceKind,
)
from goqueue.model.errors import (
    GoQueueError,
    InvalidGroupId,
    InvalidRequest,
    InvalidTopicName,
    SchemaRefusal,
    SchemaRefused,
    UnknownTransaction,
)
from goqueue.model.errors.refusals import Refusal, error_of, refusal_of
from goqueue.model.tenants import NameKind, prefix_of, prefix_of_tenant

ALL_CONTEXTS = ":*:"
DEAD_LETTER_SETTING = "dead_letter_topic"
_CLUSTER_ID_LENGTH = 22

_OF_RESOURCE = {
    ResourceKind.TOPIC: NameKind.TOPIC,
    ResourceKind.GROUP: NameKind.GROUP,
    ResourceKind.TRANSACTIONAL_ID: NameKind.TRANSACTIONAL_ID,
    ResourceKind.SUBJECT: NameKind.SUBJECT,
    ResourceKind.CLUSTER: NameKind.TOPIC,  # the cluster of a tenant is named as its topics are
}


class ForeignName(Exception):
    """A name of another tenant, which no client of this one may see."""


class Namespace:
    """The names of one tenant; those of the default tenant are the ones without a prefix."""

    __slots__ = ("_own_text", "prefix", "tenant", "transactional_id_in")

    def __init__(self, tenant: str, transactional_id_in: Callable[[str], str]) -> None:
        """`transactional_id_in` returns the transactional id in the id of a transaction."""
        self.tenant = tenant
        self.prefix = prefix_of_tenant(tenant)
        self.transactional_id_in = transactional_id_in
        self._own_text = re.compile(rf"(?<![\w.~-]){re.escape(self.prefix)}") if tenant else None

    # Names

    def inward(self, kind: NameKind, text: str) -> str:
        """Return a name as the broker has it; raise if no client can mean it."""
        name: str = INWARD[kind](self, text)
        return name

    def outward(self, kind: NameKind, text: str) -> str:
        """Return a name as clients see it; raise `ForeignName` if it is not of this tenant."""
        name: str = OUTWARD[kind](self, text)
        return name

    def add(self, name: str) -> str:
        """Add the prefix; an empty name stays empty, because it means that there is none."""
        if not self.prefix and prefix_of(name):
            raise ForeignName
        return self.prefix + name if name else name

    def strip(self, name: str) -> str:
        if not self.prefix:
            if prefix_of(name):
                raise ForeignName
            return name
        if not name.startswith(self.prefix):
            if not name:
                return name
            raise ForeignName
        return name[len(self.prefix) :]

    def add_to_context(self, context: str) -> str:
        if not self.prefix and prefix_of(context[1:]):
            raise ForeignName
        return f".{self.prefix}{context[1:]}"

    def strip_context(self, context: str) -> str:
        start = f".{self.prefix}"
        if not context.startswith(start) or (not self.prefix and prefix_of(context[1:])):
            raise ForeignName
        return f".{context[len(start) :]}"

    def add_to_subject(self, subject: str) -> str:
        """Add the tenant to the context of a qualified or an unqualified name."""
        context, name = _split(subject)
        context = self.add_to_context(context)
        return f":{context}:{name}" if context != "." else name

    def strip_subject(self, subject: str) -> str:
        context, name = _split(subject)
        context = self.strip_context(context)
        return f":{context}:{name}" if context != "." else name

    def add_to_prefix(self, prefix: str) -> str:
        return self.prefix + prefix

    def add_to_subject_prefix(self, prefix: str) -> str:
        """A listing of `:*:` shows every context, of which the others' are left out later."""
        if not self.prefix or prefix.startswith(ALL_CONTEXTS):
            return prefix
        if not prefix or prefix == ":":
            return f":.{self.prefix}"
        if prefix.startswith(":."):
            return f":.{self.prefix}{prefix[2:]}"
        return f":.{self.prefix}:{prefix}"

    def strip_subject_prefix(self, prefix: str) -> str:
        if not self.prefix:
            return self.strip_subject(prefix)
        start = f":.{self.prefix}"
        if not prefix.startswith(start):
            raise ForeignName
        rest = prefix[len(start) :]
        return rest[1:] if rest.startswith(":") else f":.{rest}"

    def add_to_pattern(self, pattern: str) -> str:
        """Return a pattern of whole names that matches those of this tenant only."""
        return f"{re.escape(self.prefix)}(?:{pattern})" if self.prefix and pattern else pattern

    def check_transaction(self, transaction_id: str) -> str:
        """The id of a transaction is opaque to clients, so it stays; but it must be their own."""
        try:
            self.strip(self.transactional_id_in(transaction_id))
        except ForeignName:
            raise UnknownTransaction(
                f"{transaction_id[:100]!r} is not the id of a transaction; use the `id` that was "
                "returned when it began."
            ) from None
        return transaction_id

    def cluster_id(self, cluster_id: str) -> str:
        """Return the cluster id that a tenant sees: its own, which never changes."""
        if not self.tenant or not cluster_id:
            return cluster_id
        digest = hashlib.sha256(f"{cluster_id}/{self.tenant}".encode()).digest()
        return base64.urlsafe_b64encode(digest).decode()[:_CLUSTER_ID_LENGTH]

    # Settings, texts, errors and resources

    def add_to_settings(self, settings: Any) -> Any:
        """Translate the values of queue settings that are names."""
        target = settings.get(DEAD_LETTER_SETTING)
        if not isinstance(target, str):
            return settings
        return {**settings, DEAD_LETTER_SETTING: self.inward(NameKind.TOPIC, target)}

    def strip_settings(self, settings: Any) -> Any:
        target = settings.get(DEAD_LETTER_SETTING)
        if not isinstance(target, str):
            return settings
        return {**settings, DEAD_LETTER_SETTING: self.strip(target)}

    def sentence(self, text: str) -> str:
        """Return a text with this tenant's names as its clients see them."""
        if self._own_text is None or self.prefix not in text:
            return text
        text = text.replace(f":.{self.prefix}:", "").replace(f".{self.prefix}", ".")
        return self._own_text.sub("", text)

    def error(self, error: GoQueueError) -> GoQueueError:
        """Return an error as clients see it."""
        if not self.prefix:
            return error
        refusal = refusal_of(error)
        detail = {
            name: self.sentence(value) if isinstance(value, str) else value
            for name, value in refusal.detail.items()
        }
        text = self.sentence(refusal.text)
        if text == refusal.text and detail == refusal.detail:
            return error
        shown = error_of(Refusal(refusal.code, text, detail))
        for name, value in vars(error).items():
            vars(shown).setdefault(name, value)
        return shown

    def resource(self, resource: Resource) -> Resource:
        """Return a resource that a client names as the broker has it."""
        return resource._replace(name=self.inward(_OF_RESOURCE[resource.kind], resource.name))

    def plain_resource(self, resource: Resource) -> Resource:
        return resource._replace(name=self.outward(_OF_RESOURCE[resource.kind], resource.name))

    # Rules of access control. One about all resources of a tenant is about a prefix inside.

    def rule(self, rule: Acl) -> Acl:
        """Return a rule that a client writes as the broker has it."""
        principal = self._principal(rule.principal, self.add)
        kind = _OF_RESOURCE[rule.kind]
        if self.prefix and rule.name == ANY_RESOURCE and not rule.is_prefix:
            return replace(
                rule, principal=principal, pattern=PatternKind.PREFIXED, name=self._all_of(kind)
            )
        if rule.is_prefix and kind is NameKind.SUBJECT:
            return replace(rule, principal=principal, name=self.add_to_subject_prefix(rule.name))
        return replace(rule, principal=principal, name=self.inward(kind, rule.name))

    def plain_rule(self, rule: Acl) -> Acl:
        """Return a rule as clients see it; raise `ForeignName` for those of other tenants."""
        kind = _OF_RESOURCE[rule.kind]
        if self.prefix and rule.is_prefix and rule.name == self._all_of(kind):
            pattern, name = PatternKind.LITERAL, ANY_RESOURCE
        elif rule.is_prefix and kind is NameKind.SUBJECT:
            pattern, name = rule.pattern, self.strip_subject_prefix(rule.name)
        else:
            pattern, name = rule.pattern, self.outward(kind, rule.name)
        principal = self._principal(rule.principal, self.strip)
        return replace(rule, principal=principal, pattern=pattern, name=name)

    def _all_of(self, kind: NameKind) -> str:
        return f":.{self.prefix}" if kind is NameKind.SUBJECT else self.prefix

    def _principal(self, principal: str, translate: Callable[[str], str]) -> str:
        """Roles belong to tenants; users have names that are unique in the cluster."""
        if not principal.startswith(ROLE_PREFIX):
            return principal
        try:
            return ROLE_PREFIX + translate(principal[len(ROLE_PREFIX) :])
        except ForeignName:
            if translate == self.strip:
                raise
            raise _bad_name(principal) from None

    def holds_name(self, name: str) -> bool:
        """Whether the name of a topic, as the broker has it, belongs to this tenant."""
        return prefix_of(name) == self.prefix

    def holds(self, resource: Resource) -> bool:
        """Whether a resource, as the broker has it, belongs to this tenant."""
        try:
            self.plain_resource(resource)
        except ForeignName:
            return False
        return True


def _split(subject: str) -> tuple[str, str]:
    """Return the context and the name of a subject."""
    if not subject.startswith(":."):
        return ".", subject
    context, _, name = subject[1:].partition(":")
    return context, name


# Translation by kind. What a client sends is refused with the error for invalid names of the kind.


def _same(_: Namespace, text: str) -> str:
    return text


def _refusing(
    add: Callable[[Namespace, str], str], refuse: Callable[[str], GoQueueError]
) -> Callable[[Namespace, str], str]:
    def inward(space: Namespace, text: str) -> str:
        try:
            return add(space, text)
        except ForeignName:
            raise refuse(text) from None

    return inward


def _bad_topic(name: str) -> GoQueueError:
    return InvalidTopicName(name, "use only letters, digits, '.', '_' and '-'")


def _bad_group(name: str) -> GoQueueError:
    return InvalidGroupId(f"{name[:100]!r} is not a valid group id.")


def _bad_subject(name: str) -> GoQueueError:
    return SchemaRefused(
        SchemaRefusal.INVALID_SUBJECT,
        f"The specified subject '{name[:100]}' is not a valid subject: its context is reserved.",
    )


def _bad_name(name: str) -> GoQueueError:
    return InvalidRequest(f"{name[:100]!r} is not a valid name: what it begins with is reserved.")


def _reference(space: Namespace, text: str) -> str:
    return space.add_to_subject(text) if text.startswith(":.") else text


def _plain_reference(space: Namespace, text: str) -> str:
    return space.strip_subject(text) if text.startswith(":.") else text


def _new_name(space: Namespace, name: str | None) -> str | None:
    return space.prefix or None if name is None else _name(space, name)


_topic = _refusing(Namespace.add, _bad_topic)
_name = _refusing(Namespace.add, _bad_name)

INWARD: dict[NameKind, Callable[[Namespace, Any], Any]] = {
    NameKind.NONE: _same,
    NameKind.TOPIC: _topic,
    NameKind.GROUP: _refusing(Namespace.add, _bad_group),
    NameKind.TRANSACTIONAL_ID: _name,
    NameKind.NEW_TRANSACTIONAL_ID: _new_name,
    NameKind.QUEUE: _topic,
    NameKind.QUERY: _name,
    NameKind.ROLE: _name,
    NameKind.SUBJECT: _refusing(Namespace.add_to_subject, _bad_subject),
    NameKind.REFERENCE: _refusing(_reference, _bad_subject),
    NameKind.CONTEXT: _refusing(Namespace.add_to_context, _bad_subject),
    NameKind.NAME_PREFIX: Namespace.add_to_prefix,
    NameKind.SUBJECT_PREFIX: Namespace.add_to_subject_prefix,
    NameKind.CONTEXT_PREFIX: lambda space, prefix: f".{space.prefix}{prefix[1:]}",
    NameKind.PATTERN: Namespace.add_to_pattern,
    NameKind.TRANSACTION: Namespace.check_transaction,
    NameKind.TEXT: _same,
    NameKind.CLUSTER: _same,
    NameKind.QUEUE_SETTINGS: Namespace.add_to_settings,
}

OUTWARD: dict[NameKind, Callable[[Namespace, Any], Any]] = {
    NameKind.NONE: _same,
    NameKind.TOPIC: Namespace.strip,
    NameKind.GROUP: Namespace.strip,
    NameKind.TRANSACTIONAL_ID: Namespace.strip,
    NameKind.NEW_TRANSACTIONAL_ID: Namespace.strip,
    NameKind.QUEUE: Namespace.strip,
    NameKind.QUERY: Namespace.strip,
    NameKind.ROLE: Namespace.strip,
    NameKind.SUBJECT: Namespace.strip_subject,
    NameKind.REFERENCE: _plain_reference,
    NameKind.CONTEXT: Namespace.strip_context,
    NameKind.NAME_PREFIX: Namespace.strip,
    NameKind.SUBJECT_PREFIX: _same,
    NameKind.CONTEXT_PREFIX: _same,
    NameKind.PATTERN: _same,
    NameKind.TRANSACTION: _same,
    NameKind.TEXT: Namespace.sentence,
    NameKind.CLUSTER: Namespace.cluster_id,
    NameKind.QUEUE_SETTINGS: Namespace.strip_settings,
}
