"""Names of tenants, and the names of what belongs to them.

A tenant is a name space. Inside the broker, the topic `orders` of the tenant `acme` is called
`~acme~orders`, and so are its groups, transactional ids and queues; a name without such a prefix
belongs to the default tenant. Clients see the plain name: the gate translates. The prefix is not
valid in a topic name, and in other names clients cannot send it.
"""

from __future__ import annotations

import re
from enum import Enum, StrEnum
from typing import Annotated

from goqueue.model.errors import InvalidTenantName

MARK = "~"
TENANT_LENGTH_MAX = 32

_TENANT = r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
_tenant = re.compile(_TENANT)
_prefix = re.compile(f"{MARK}{_TENANT}{MARK}")


class TenantState(StrEnum):
    """What the users of a tenant may do."""

    ACTIVE = "active"
    READ_ONLY = "read_only"  # read, receive and acknowledge; nothing that writes or changes
    SUSPENDED = "suspended"  # nothing
    DELETING = "deleting"  # nothing; its resources are being deleted


class NameKind(Enum):
    """What a text is, so that the gate can translate it for tenants."""

    NONE = "none"  # not a name, or not one that belongs to a tenant
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    # As above, but None has the broker make one: `~acme~` inside, without a name.
    NEW_TRANSACTIONAL_ID = "new transactional id"
    QUEUE = "queue"
    QUERY = "query"
    ROLE = "role"
    SUBJECT = "subject"  # with its context, if that is not the default one
    REFERENCE = "reference"  # a subject; without a context, in that of the subject that refers
    CONTEXT = "context"
    NAME_PREFIX = "prefix of names"  # to select topics, groups or transactional ids
    SUBJECT_PREFIX = "prefix of subjects"
    CONTEXT_PREFIX = "prefix of contexts"
    PATTERN = "pattern"  # a regular expression for transactional ids
    TRANSACTION = "transaction"  # the id of a transaction, which contains its transactional id
    TEXT = "text"  # a sentence that may contain names
    CLUSTER = "cluster id"
    QUEUE_SETTINGS = "queue settings"  # by name; some values are names of topics


Text = Annotated[str, NameKind.NONE]
TopicName = Annotated[str, NameKind.TOPIC]
GroupName = Annotated[str, NameKind.GROUP]
TransactionalId = Annotated[str, NameKind.TRANSACTIONAL_ID]
NewTransactionalId = Annotated[str | None, NameKind.NEW_TRANSACTIONAL_ID]
QueueName = Annotated[str, NameKind.QUEUE]
QueryId = Annotated[str, NameKind.QUERY]
RoleName = Annotated[str, NameKind.ROLE]
SubjectName = Annotated[str, NameKind.SUBJECT]
SubjectReference = Annotated[str, NameKind.REFERENCE]
ContextName = Annotated[str, NameKind.CONTEXT]
NamePrefix = Annotated[str, NameKind.NAME_PREFIX]
SubjectPrefix = Annotated[str, NameKind.SUBJECT_PREFIX]
ContextPrefix = Annotated[str, NameKind.CONTEXT_PREFIX]
NamePattern = Annotated[str, NameKind.PATTERN]
TransactionHandle = Annotated[str, NameKind.TRANSACTION]
Sentence = Annotated[str, NameKind.TEXT]
ClusterId = Annotated[str, NameKind.CLUSTER]


def check_tenant_name(name: str) -> None:
    if not _tenant.fullmatch(name):
        raise InvalidTenantName(name, TENANT_LENGTH_MAX)


def prefix_of_tenant(tenant: str) -> str:
    """Return the prefix of a tenant's names; that of the default tenant is empty."""
    return f"{MARK}{tenant}{MARK}" if tenant else ""


def prefix_of(name: str) -> str:
    """Return the prefix of the tenant to which a name belongs."""
    if not name.startswith(MARK):
        return ""
    found = _prefix.match(name)
    return "" if found is None else found[0]


def is_bare_prefix(name: str) -> bool:
    """Whether a name is nothing but the prefix of a tenant, which no client can send."""
    return name != "" and prefix_of(name) == name


def scope_of(name: str) -> str:
    """Return the prefix with which all names of the same tenant begin, subjects included."""
    if name.startswith(":."):
        prefix = prefix_of(name[2:])
        return f":.{prefix}" if prefix else ""
    return prefix_of(name)


def tenant_of(name: str) -> str:
    """Return the tenant to which a name belongs."""
    return prefix_of(name)[1:-1]


def tenant_of_resource(name: str) -> str:
    """Return the tenant to which a resource of any kind belongs, a subject too."""
    return tenant_of(scope_of(name).removeprefix(":."))


def plain_name(name: str) -> str:
    """Return a name as the clients of its tenant see it."""
    return name[len(prefix_of(name)) :]


def name_beside(known: str, plain: str) -> str | None:
    """Return a plain name as one of the tenant of `known`; None if no client can have sent it."""
    prefix = prefix_of(known)
    return None if not prefix and prefix_of(plain) else prefix + plain
