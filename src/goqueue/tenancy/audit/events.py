"""The events of the audit log, before they have a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum, StrEnum
from itertools import islice
from typing import Any, NamedTuple

from goqueue.model.access import Access, Acl, Action, Resource
from goqueue.model.errors import GoQueueError
from goqueue.model.session import ANONYMOUS, Session
from goqueue.model.tenants import prefix_of_tenant

TEXT_LENGTH_MAX = 256  # of every text that a client can choose
RESOURCES_MAX = 20  # in one event


class Group(IntEnum):
    """What an event is about. Groups do not share limits, so that none can hide another."""

    DENIED = 1  # denied actions and failed authentication
    CHANGE = 2
    TRAFFIC = 3  # reads, produce and consume, and successful authentication
    NODE = 4


class Outcome(StrEnum):
    ALLOWED = "allowed"
    DENIED = "denied"
    FAILED = "failed"  # allowed, but it was refused for another reason


class Severity(IntEnum):
    """As OCSF numbers them. The lower ones are dropped first when events cannot be written.

    A denial is less severe than a change: a client can cause any number of the one, but needs
    permission for the other.
    """

    INFORMATIONAL = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4


SEVERITIES = {
    Group.TRAFFIC: Severity.INFORMATIONAL,
    Group.DENIED: Severity.LOW,
    Group.CHANGE: Severity.MEDIUM,
    Group.NODE: Severity.MEDIUM,
}


class Who(NamedTuple):
    """The client of an event."""

    principal: str
    tenant: str
    host: str
    listener: str
    mechanism: str = ""


class Event(NamedTuple):
    """Something that happened. Events that differ only in texts for people are the same."""

    group: Group
    outcome: Outcome
    who: Who
    operation: str
    action: str = ""
    resources: tuple[tuple[str, str], ...] = ()  # kinds and names
    code: str = ""  # of the error
    serial: int = 0  # distinguishes events that must not be merged
    detail: str = ""
    client_id: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for events that may be merged."""
        return self[:-2]

    @property
    def source(self) -> str:
        """Who is limited, if there are too many events: a user, or an address."""
        is_known = self.who.principal != ANONYMOUS and self.operation != LOGON
        return self.who.principal if is_known else self.who.host

    @property
    def severity(self) -> Severity:
        return Severity.HIGH if self.operation == LOST else SEVERITIES[self.group]


LOGON = "logon"
THROTTLED = "quotas.throttled"
LOST = "audit.lost"
START = "node.start"
STOP = "node.stop"
OTHERS = "*"  # as the operation of an event that stands for many different ones
NODE_ITSELF = Who("", "", "", "")

# Arguments that name what an operation is about, and the kinds of these. A name that is not here
# is never written, because it may be a secret.
_NAMED_BY = {
    "group": "group",
    "key_id": "key",
    "level": "level",
    "node": "node",
    "quota": "quota",
    "role": "role",
    "subject": "subject",
    "tenant": "tenant",
    "topic": "topic",
    "user": "user",
}
_NAME = "name"  # an argument that names an object of the area
# Arguments that say what is changed, and the kinds of what they contain.
_CHANGED_BY = {
    "changes": "setting",
    "filter": "rules",
    "limits": "limit",
    "members": "member",
    "moves": "move",
    "names": "quota of",
    "partitions": "partition",
    "rules": "rule",
    "spec": "queue",
    "state": "state",
    "topics": "topic",
}
_CREATING = ("create", "add", "put", "register")
_DELETING = ("delete", "remove", "unregister", "purge")


def who(session: Session) -> Who:
    return Who(
        short(session.principal),
        short(session.tenant),
        short(session.client_host),
        session.listener,
        session.mechanism,
    )


def short(text: str) -> str:
    """Return a text that a client has chosen, cut to a length that can be stored."""
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


def denied(session: Session, action: Action, resource: Resource, *, operation: str) -> Event:
    return Event(
        Group.DENIED,
        Outcome.DENIED,
        who(session),
        operation,
        action.value,
        _some(session, [_pair(resource)]),
        "access_denied",
        detail=_own(session, f"{action.value} on {short(str(resource))} is not allowed"),
        client_id=short(session.client_id),
    )


def changed(
    session: Session,
    operation: str,
    action: Action,
    resources: Iterable[tuple[str, str]],
    error: Exception | None,
    serial: int,
) -> Event:
    """Return a change, which is not merged with others unless it has failed."""
    return Event(
        Group.CHANGE,
        Outcome.ALLOWED if error is None else Outcome.FAILED,
        who(session),
        operation,
        action.value,
        _some(session, resources),
        code_of(error),
        serial if error is None else 0,
        _detail(session, error),
        short(session.client_id),
    )


def traffic(
    session: Session,
    operation: str,
    action: Action,
    resources: Iterable[tuple[str, str]],
    error: Exception | None = None,
) -> Event:
    return Event(
        Group.TRAFFIC,
        Outcome.ALLOWED if error is None else Outcome.FAILED,
        who(session),
        operation,
        action.value,
        _some(session, resources),
        code_of(error),
        detail=_detail(session, error),
        client_id=short(session.client_id),
    )


def authenticated(session: Session, user: str, mechanism: str, error: Exception | None) -> Event:
    client = who(session)._replace(principal=f"User:{short(user)}", mechanism=mechanism)
    return Event(
        Group.TRAFFIC if error is None else Group.DENIED,
        Outcome.ALLOWED if error is None else Outcome.DENIED,
        client,
        LOGON,
        code=code_of(error),
        detail=_detail(session, error),
        client_id=short(session.client_id),
    )


def throttled(session: Session, limit: str) -> Event:
    """Return that a client has used up a quota.

    Connections share a rate, so its session has neither address nor listener.
    """
    client = who(session)
    if not client.host:
        client = client._replace(listener=OTHERS, mechanism="")
    resources = [("quota", limit)]
    if session.client_id:
        resources.append(("client-id", short(session.client_id)))
    return Event(
        Group.TRAFFIC,
        Outcome.FAILED,
        client,
        THROTTLED,
        resources=tuple(resources),
        code="quota_exceeded",
        client_id=short(session.client_id),
    )


def of_node(operation: str, detail: str = "", *, serial: int) -> Event:
    is_lost = operation == LOST
    return Event(
        Group.NODE,
        Outcome.FAILED if is_lost else Outcome.ALLOWED,
        NODE_ITSELF,
        operation,
        serial=serial,
        detail=detail,
    )


def others(event: Event) -> Event:
    """Return the event that stands for those of a source beyond its limit."""
    return Event(event.group, event.outcome, event.who, OTHERS, detail="too many different events")


def all_others(group: Group) -> Event:
    """Return the event that stands for those of all sources beyond the limit of sources."""
    everybody = Who(OTHERS, "", "", "")
    outcome = Outcome.DENIED if group is Group.DENIED else Outcome.ALLOWED
    return Event(group, outcome, everybody, OTHERS, detail="too many different sources")


def code_of(error: Exception | None) -> str:
    if error is None:
        return ""
    return error.code if isinstance(error, GoQueueError) else "internal_error"


def pairs(accesses: Iterable[Access]) -> Iterator[tuple[str, str]]:
    """Return the resources of accesses as kinds and names."""
    for access in accesses:
        yield _pair(access.resource)


def named_by(operation: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return what arguments name: objects that are not resources of access control, or new."""
    area = operation.partition(".")[0]
    for argument, kind in {**_NAMED_BY, _NAME: area.removesuffix("s")}.items():
        value = arguments.get(argument)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            yield kind, short(str(value))
    for argument, kind in _CHANGED_BY.items():
        for value in _parts_of(arguments.get(argument)):
            yield kind, short(_text_of(value))


def is_trial(arguments: Mapping[str, Any]) -> bool:
    """Whether a call only shows what it would change."""
    return bool(arguments.get("dry_run") or arguments.get("is_dry_run"))


def is_creating(operation: str) -> bool:
    return operation.rpartition(".")[2].startswith(_CREATING)


def is_deleting(operation: str) -> bool:
    return operation.rpartition(".")[2].startswith(_DELETING)


def _parts_of(value: Any) -> Iterable[Any]:
    """Return the items of an argument: of a list, or the pairs of a mapping."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return [f"{name}={one}" for name, one in islice(value.items(), RESOURCES_MAX)]
    if isinstance(value, list) or type(value) is tuple:
        return value[:RESOURCES_MAX]
    return (value,)


def _text_of(value: Any) -> str:
    """Return a part of a change as text: its fields that are set."""
    if isinstance(value, Acl):
        return (
            f"{value.permission} {value.principal} from {value.host} to {value.action} "
            f"{value.pattern} {value.kind} {value.name}"
        )
    fields = getattr(value, "_fields", None) or getattr(value, "__struct_fields__", None)
    if fields is None:
        return str(value)
    parts = [getattr(value, one) for one in fields]
    return " ".join(str(one) for one in parts if isinstance(one, str | int) and one != "")


def _pair(resource: Resource) -> tuple[str, str]:
    return resource.kind.lower(), short(resource.name)


def _some(session: Session, resources: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return different resources, as many as fit, with the names that the client uses."""
    named = tuple(dict.fromkeys(resources))[:RESOURCES_MAX]
    if not session.tenant:
        return named
    return tuple((kind, _own(session, name)) for kind, name in named)


def _detail(session: Session, error: Exception | None) -> str:
    return "" if error is None else _own(session, short(str(error)))


def _own(session: Session, text: str) -> str:
    """Return a text without the prefix that names of the session's tenant have in the broker."""
    return text.replace(prefix_of_tenant(session.tenant), "") if session.tenant else text
