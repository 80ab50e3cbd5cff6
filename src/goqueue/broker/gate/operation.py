"""Operations: how they are declared, the table of all of them, and the steps of every call.

An operation is declared where it is performed, as a method of an area:

    class SchedulesArea(Area):
        @operation(Action.DESCRIBE, topic("topic"), owner=owner_of_schedule)
        async def show(self, session: Session, *, schedule_id: str) -> Schedule: ...

The method performs it on the node that must answer. Whoever calls it goes through the steps of the
dispatcher (authorise, find the owner, perform, observe), and gets a promise. Arguments are passed
by name, and have types that can be sent to another node.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from goqueue.broker.gate.authoriser import Authoriser
from goqueue.broker.gate.waiting import WaitingCalls
from goqueue.loop.promise import Promise, promised
from goqueue.model.access import CLUSTER, Access, Action, Resource, ResourceKind
from goqueue.model.errors import AccessDenied, GoQueueError
from goqueue.model.observer import Observer, interested
from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.gate.forwarding import Forwarder
    from goqueue.broker.gate.tenant_calls import TenantCalls
    from goqueue.broker.quotas.quotas import Quotas
    from goqueue.broker.topics.topics import Topic

NO_OWNER = -1

Arguments = Mapping[str, Any]
# The resources of an operation: with its own action, or with another one where that is given.
Resources = Callable[[Arguments], Iterable[Resource | Access]]
# The node that must answer, -1 if there is none, or None if any node can.
Owner = Callable[["Broker", Arguments], int | Awaitable[int | None] | None]
# The bytes and messages of an answer, which count against the rates of whoever reads it.
Charges = Callable[[Any], tuple[int, int]]
# Merges the answers of all nodes, each of which has only a part.
Merge = Callable[[Arguments, Sequence[Any]], Any]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound="Area")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a broker."""

    name: str  # area and method
    action: Action
    resources: Resources
    perform: Callable[..., Any]
    owner: Owner | None = None
    merge: Merge | None = None
    is_reading: bool = False  # changes nothing, so it may be repeated when a response is lost
    is_immediate: bool = False  # answered at once, from local state
    is_change: bool = False  # administers something, rather than reads, or moves messages
    is_partial: bool = False  # merged from those nodes that answer; the result says which
    is_for_operators: bool = False  # concerns the whole cluster, so no tenant may use it
    shows_all_tenants: bool = False  # as it is stored, so the default tenant may not either
    is_always_routed: bool = False  # also for protocols whose clients find owners themselves
    charges: Charges | None = None  # for reading; refused to clients that are over their rate

    @property
    def is_routed(self) -> bool:
        return self.owner is not None or self.merge is not None

    def accesses(self, arguments: Arguments) -> Iterable[Access]:
        """Return the resources of a call with these arguments, each with its action."""
        for touched in self.resources(arguments):
            yield touched if isinstance(touched, Access) else Access(self.action, touched)


OPERATIONS: dict[str, Operation] = {}

# The events of calls that a dispatcher reports.
_DISPATCHED = ("called", "queried", "opened", "created")
_CHANGES = frozenset({Action.CREATE, Action.DELETE, Action.ALTER, Action.ALTER_CONFIGS})


# The steps of a call


class Dispatcher:
    """Takes every call through the same steps, whatever front end it comes from."""

    def __init__(self, broker: Broker, authoriser: Authoriser) -> None:
        self.broker = broker
        self.authoriser = authoriser
        self.namespaces = authoriser.namespaces
        self._waiting = WaitingCalls(authoriser)
        self.areas: dict[str, Area] = {}
        self.forwarder: Forwarder | None = None  # None: everything is performed here
        # For operations that are always routed, whose owner clients have no way to find.
        self.last_resort: Forwarder | None = None
        self.observer = interested(broker.observer, _DISPATCHED)
        observes_traffic = self.observer is not None and self.observer.observes_traffic
        self.traffic_observer = self.observer if observes_traffic else None
        self.tenants: TenantCalls  # set by the gate

    def call(
        self, session: Session, operation: Operation, area: Area, arguments: Arguments
    ) -> Promise[Any]:
        """Answer an operation, here or on the node that owns its resource."""
        if self.has_names(session):
            return self._call_translated(session, operation, area, arguments)
        return self._call(session, operation, area, arguments)

    def has_names(self, session: Session) -> bool:
        """Whether the names in the calls of a session may have to be translated."""
        return (session.tenant != "" or self.namespaces.is_used) and not session.is_inside

    def _call_translated(
        self, session: Session, operation: Operation, area: Area, arguments: Arguments
    ) -> Promise[Any]:
        """Answer an operation whose names are those of a tenant."""
        try:
            call = self.tenants.begin(session, operation, arguments)
        except GoQueueError as error:
            return _rejected(error)
        if call is None:
            return self._call(session, operation, area, arguments)
        shown: Promise[Any] = Promise()

        def answered(value: Any, error: Exception | None) -> None:
            try:
                if error is None:
                    value = call.result(value)
                else:
                    error = call.error(error)
            except Exception as failure:
                error = failure
            shown.settle(None if error else value, error)

        self._call(call.session, operation, area, call.arguments).then(answered)
        return shown

    def query(
        self, session: Session, operation: Operation, area: Area, arguments: Arguments
    ) -> Any:
        """Answer an operation at once whose names are those of a tenant."""
        call = self.tenants.begin(session, operation, arguments)
        if call is None:
            return self._query(session, operation, area, arguments)
        try:
            value = self._query(call.session, operation, area, call.arguments)
        except GoQueueError as error:
            raise call.error(error) from None
        return call.result(value)

    def _query(
        self, session: Session, operation: Operation, area: Area, arguments: Arguments
    ) -> Any:
        if self.authoriser.policy is not None:
            self.authoriser.authorise(session, operation, arguments)
        if self.traffic_observer is not None:
            self.traffic_observer.queried(session, operation, arguments)
        return operation.perform(area, session, **arguments)

    def _call(
        self, session: Session, operation: Operation, area: Area, arguments: Arguments
    ) -> Promise[Any]:
        if self.authoriser.policy is not None:
            try:
                self.authoriser.authorise(session, operation, arguments)
            except GoQueueError as error:
                return _rejected(error)
        observer = self.observer if operation.is_change else self.traffic_observer
        if observer is None:
            answer = self.answer(session, operation, area, arguments)
        else:
            answer = self._observed(observer, session, operation, area, arguments)
        if self.authoriser.policy is None:
            return answer
        return self._waiting.watch(session, operation, arguments, answer)

    def answer(
        self, session: Session, operation: Operation, area: Area, arguments: Arguments
    ) -> Promise[Any]:
        """Answer an authorised operation, or a part of one, here or on its owner."""
        forwarder = self.last_resort if operation.is_always_routed else self.forwarder
        if forwarder is None or not operation.is_routed:
            return _perform(operation, area, session, arguments)
        return forwarder.route(
            session, operation, arguments, lambda: _perform(operation, area, session, arguments)
        )

    def perform(self, session: Session, operation: Operation, arguments: Arguments) -> Promise[Any]:
        """Perform an operation that another node has authorised and forwarded."""
        area = self.areas[operation.name.partition(".")[0]]
        return _perform(operation, area, session, arguments)

    def _observed(
        self,
        observer: Observer,
        session: Session,
        operation: Operation,
        area: Area,
        arguments: Arguments,
    ) -> Promise[Any]:
        now_ms = self.broker.clock.now_ms
        began_ms = now_ms()
        answer = self.answer(session, operation, area, arguments)
        answer.then(
            lambda _, error: observer.called(
                session, operation, arguments, error, now_ms() - began_ms
            )
        )
        return answer


def _perform(
    operation: Operation, area: Area, session: Session, arguments: Arguments
) -> Promise[Any]:
    """Run an operation on this node; exceptions reject the promise."""
    quotas = area._broker.quotas
    charges = operation.charges if quotas.is_active else None
    try:
        if charges is not None:
            quotas.check_consume(session)
        answer = operation.perform(area, session, **arguments)
    except Exception as error:
        return _rejected(error)
    if not isinstance(answer, Promise):
        assert isinstance(answer, CoroutineType)
        answer = promised(answer)
    if charges is not None:
        answer.then(partial(_charge, quotas, session, charges))
    return answer


def _charge(
    quotas: Quotas, session: Session, charges: Charges, answer: Any, error: Exception | None
) -> None:
    """Charge a client for what it has read."""
    if error is None:
        quotas.consumed(session, *charges(answer))


def _rejected(error: Exception) -> Promise[Any]:
    refused: Promise[Any] = Promise()
    refused.reject(error)
    return refused


# Declaration


class Area:
    """Operations on one kind of object. The gate names it after its class."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._broker = dispatcher.broker
        self._dispatcher = dispatcher
        self._authoriser = dispatcher.authoriser
        self._traffic_observer = dispatcher.traffic_observer
        self._name = area_name(type(self).__name__)
        dispatcher.areas[self._name] = self

    def _check(self, session: Session, action: Action, resource: Resource) -> None:
        """Raise unless a session may access a resource that only the owner can determine."""
        self._authoriser.check(session, action, resource, operation=self._name)

    def _denial(self, session: Session, action: Action, resource: Resource) -> AccessDenied:
        """Return the error for what a session may not do, and report it."""
        self._authoriser.report_denied(session, action, resource, operation=self._name)
        return self._authoriser.denial(session, action, resource)

    def _mutate(self, session: Session, count: int = 1) -> None:
        """Charge changes of the metadata; raise if the client has to wait."""
        if self._broker.quotas.is_active:
            self._broker.quotas.mutate(session, count)

    async def _create_topic(
        self, session: Session, topic: str, *, may_create: bool = True
    ) -> Topic:
        """Create a topic that a session is about to use, if settings and its rights allow."""
        if may_create:
            self._check_create(session, topic)
            self._mutate(session, self._broker.settings.topics.partitions)
        observer = self._dispatcher.observer
        created = promised(self._broker.auto_creation.create(topic, may_create=may_create))
        if observer is not None:
            resource = Resource(ResourceKind.TOPIC, topic)
            created.then(lambda _, error: observer.created(session, resource, error))
        return await created

    def _check_create(self, session: Session, topic: str) -> None:
        """Raise unless a session may create a topic, by its name or in the whole cluster."""
        if not self._may(session, Action.CREATE, CLUSTER):
            self._check(session, Action.CREATE, Resource(ResourceKind.TOPIC, topic))

    def _may(self, session: Session, action: Action, resource: Resource) -> bool:
        return self._authoriser.allows(session, action, resource)

    def _sees_topic(self, session: Session, name: str) -> bool:
        return self._may(session, Action.DESCRIBE, Resource(ResourceKind.TOPIC, name))


def operation(
    action: Action,
    *resources: Resources,
    owner: Owner | None = None,
    merge: Merge | None = None,
    is_reading: bool = False,
    is_change: bool | None = None,
    is_always_routed: bool = False,
    is_partial: bool = False,
    charges: Charges | None = None,
) -> Callable[
    [Callable[Concatenate[A, Session, P], Awaitable[R]]],
    Callable[Concatenate[A, Session, P], Promise[R]],
]:
    """Declare an asynchronous operation, answered here or by another node.

    Whether it `is_change` follows from the action, unless it is given: most operations that read
    or write messages are not, but some of them discard or move many at once. One that returns
    records says with `charges` how much of them counts against the rates of its reader.
    """
    if is_change is None:
        is_change = action in _CHANGES and not is_reading

    def declare(
        method: Callable[Concatenate[A, Session, P], Awaitable[R]],
    ) -> Callable[Concatenate[A, Session, P], Promise[R]]:
        declared = _declare(
            method,
            action,
            resources,
            owner,
            merge,
            is_reading=is_reading,
            is_change=is_change,
            is_always_routed=is_always_routed,
            is_partial=is_partial,
            charges=charges,
        )

        @wraps(method)
        def call(area: A, session: Session, /, *args: P.args, **arguments: P.kwargs) -> Promise[R]:
            assert not args, "arguments of operations have names"
            return area._dispatcher.call(session, declared, area, arguments)

        return call

    return declare


def query(
    action: Action, *resources: Resources
) -> Callable[[Callable[Concatenate[A, Session, P], R]], Callable[Concatenate[A, Session, P], R]]:
    """Declare an operation that every node answers at once from its local state."""

    def declare(
        method: Callable[Concatenate[A, Session, P], R],
    ) -> Callable[Concatenate[A, Session, P], R]:
        declared = _declare(method, action, resources, is_reading=True, is_immediate=True)

        @wraps(method)
        def call(area: A, session: Session, /, *args: P.args, **arguments: P.kwargs) -> R:
            assert not args, "arguments of operations have names"
            if area._dispatcher.has_names(session):
                answer: R = area._dispatcher.query(session, declared, area, arguments)
                return answer
            if area._authoriser.policy is not None:
                area._authoriser.authorise(session, declared, arguments)
            if area._traffic_observer is not None:
                area._traffic_observer.queried(session, declared, arguments)
            return method(area, session, *args, **arguments)

        return call

    return declare


def _declare(
    method: Callable[..., Any],
    action: Action,
    resources: Sequence[Resources],
    owner: Owner | None = None,
    merge: Merge | None = None,
    *,
    is_reading: bool,
    is_immediate: bool = False,
    is_change: bool = False,
    is_always_routed: bool = False,
    is_partial: bool = False,
    charges: Charges | None = None,
) -> Operation:
    area, _, name = method.__qualname__.rpartition(".")
    full = f"{area_name(area)}.{name}"
    assert full not in OPERATIONS, f"{full} is declared twice"
    declared = Operation(
        full,
        action,
        _all_of(resources),
        method,
        owner,
        merge,
        is_reading,
        is_immediate,
        is_change,
        is_partial,
        is_for_operators=cluster in resources or whole_cluster in resources,
        shows_all_tenants=whole_cluster in resources,
        is_always_routed=is_always_routed,
        charges=charges,
    )
    OPERATIONS[full] = declared
    return declared


def area_name(class_name: str) -> str:
    """Return the name of an area: `dead_letters` for `DeadLettersArea`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name.removesuffix("Area")).lower()


# Resources. The name of each function, without underscores, is shown on the page of operations.


def topic(argument: str = "topic") -> Resources:
    return _named(ResourceKind.TOPIC, argument)


def topics(argument: str = "topics") -> Resources:
    """Return every topic of an argument that names several."""

    def resources(arguments: Arguments) -> Iterable[Resource]:
        return [Resource(ResourceKind.TOPIC, name) for name in arguments.get(argument) or ()]

    resources.__name__ = "topics" if argument == "topics" else f"topics in {argument}"
    return resources


def group(argument: str = "group") -> Resources:
    return _named(ResourceKind.GROUP, argument)


def transactional_id(argument: str = "transactional_id") -> Resources:
    return _named(ResourceKind.TRANSACTIONAL_ID, argument)


def subject(argument: str = "subject") -> Resources:
    return _named(ResourceKind.SUBJECT, argument)


def named_by_owner(_: Arguments) -> Iterable[Resource]:
    """For an id that only the owner can resolve: the method checks the resource it finds."""
    return ()


def everybody(_: Arguments) -> Iterable[Resource]:
    """For information open to every client, such as the addresses of nodes."""
    return ()


def cluster(_: Arguments) -> Iterable[Resource]:
    """For what concerns all tenants, and is refused to the users of any but the default one."""
    return (CLUSTER,)


def whole_cluster(_: Arguments) -> Iterable[Resource]:
    """For the data of all tenants as it is stored: once there are tenants, only for super users."""
    return (CLUSTER,)


def own_cluster(_: Arguments) -> Iterable[Resource]:
    """For what each tenant has for itself, as if it had a cluster of its own."""
    return (CLUSTER,)


whole_cluster.__name__ = own_cluster.__name__ = (
    cluster.__name__
)  # as the page of all operations shows it


def also(action: Action, resources: Resources) -> Resources:
    """Return resources that the operation accesses with another action than its main one."""

    def accesses(arguments: Arguments) -> Iterable[Access]:
        for one in resources(arguments):
            assert isinstance(one, Resource)
            yield Access(action, one)

    accesses.__name__ = f"{action} {words_of(resources)}"
    return accesses


def _named(kind: ResourceKind, argument: str) -> Resources:
    """Return the name in an argument, or in a field of one, such as `call.group_id`."""
    first, _, field = argument.partition(".")

    def resources(arguments: Arguments) -> Iterable[Resource]:
        name = arguments.get(first)
        if field and name is not None:
            name = getattr(name, field)
        return () if name is None else (Resource(kind, str(name)),)

    words = kind.lower()
    resources.__name__ = words if field or argument == words else f"{words} in {argument}"
    return resources


def _all_of(parts: Sequence[Resources]) -> Resources:
    if not parts:
        return named_by_owner
    if len(parts) == 1:
        return parts[0]

    def resources(arguments: Arguments) -> Iterable[Resource | Access]:
        return [one for part in parts for one in part(arguments)]

    resources.__name__ = ", ".join(words_of(part) for part in parts)
    return resources


def words_of(function: Callable[..., Any]) -> str:
    """Return the name of a resource or owner function, as words."""
    return str(getattr(function, "__name__", function)).strip("_").replace("_", " ")
