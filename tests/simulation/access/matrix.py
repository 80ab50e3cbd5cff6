"""The matrix of access: every request of every front end × who sends it.

A column says who sends the requests. To add one, add it to `COLUMNS`: how access is controlled, and
what is answered although nothing is allowed. A user of another tenant has a column of its own kind:
it may do everything there, so its requests are answered, but must neither show nor change what the
default tenant has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.broker import Broker
from goqueue.broker.gate.authoriser import Authoriser
from goqueue.model.session import ConnectedClient, Session
from goqueue.model.tenants import prefix_of_tenant
from tests.simulation.access.requests import CASES, Case
from tests.simulation.access.scene import BUILDER, HIDDEN_NAMES, Exactly, Recorder, Scene

TENANT = "other"
PREFIX = prefix_of_tenant(TENANT).encode()

# What everybody may know who has reached the node.
PUBLIC = {
    "http: whoami",
    "http: showAccess",
    "http: listTopicSettings",
    "http: listGroupSettings",
    "http: welcome",
    "http: version",
    "http: openapi",
    "http: docs",
    "registry: GET /",
    "registry: GET /schemas/types",
    "registry: GET /v1/metadata/id",
    "registry: GET /v1/metadata/version",
    "grpc: GetSession",
    "grpc: ServerReflectionInfo",
    "kafka: DescribeCluster",
    "kafka: DescribeConfigs of the HTTP listener",
    "kafka: GetTelemetrySubscriptions",
}
# What needs no credentials: health, and what leads to authentication.
OPEN = {
    "http: health",
    "http: ready",
    "http: alive",
    "grpc: Check",
    "grpc: List",
    "grpc: Watch",
    "kafka: ApiVersions",
    "kafka: SaslHandshake",
}
# Lists that leave out what the caller may not see, and requests with an outcome for each part.
FILTERED = {
    "http: listTopics",
    "http: listTopics by what they contain",
    "http: listGroups",
    "http: listGroups by lag",
    "http: listSchedules",
    "http: readCalendar",
    "http: listDeadLetterTopics",
    "http: listSubjects",
    "http: listReports",
    "http: countSchedules",
    "http: cancelSchedules",
    "http: listTransactions",
    "http: listQueries",
    "http: listJourneys",
    "http: listJourneys by trace id",
    "http: readJourneyEvents",
    "http: followJourneyEvents",
    "registry: GET /subjects",
    "registry: GET /schemas",
    "registry: GET /contexts",
    "sqs: ListQueues",
    "grpc: ListTopics",
    "grpc: ListGroups",
    "grpc: ListSchedules",
    "grpc: CountSchedules",
    "grpc: CancelSchedules",
    "grpc: ListTransactions",
    "kafka: ListGroups",
    "kafka: ListTransactions",
}


@dataclass(frozen=True)
class Column:
    """Who sends the requests of a column, of which none may have an effect."""

    policy: Callable[[Broker], Any]
    answered: frozenset[str]  # requests that are not refused
    must_authenticate: bool = False


COLUMNS = {
    "denied": Column(lambda broker: broker.access, frozenset(PUBLIC | OPEN | FILTERED)),
    "not authenticated": Column(
        lambda broker: broker.access, frozenset(OPEN), must_authenticate=True
    ),
}


def check_refusals(scene: Scene, column: Column, broker: Broker) -> list[str]:
    """Send every request; return a sentence for each cell that leaks or acts."""
    scene.control(column.policy)
    before, faults = scene.fingerprint(), []
    for case in CASES:
        answer = case.send(scene, broker, column.must_authenticate)
        if not answer.is_refusal and str(case) not in column.answered:
            faults.append(f"{case} is answered: {answer.outcome} {answer.data[:200]!r}")
        leaked = [one for one in HIDDEN_NAMES if one in answer.data]
        if leaked:
            faults.append(f"{case} reveals {leaked}: {answer.data[:400]!r}")
        after = scene.fingerprint()
        if after != before:
            faults.append(f"{case} has an effect")
            before = after
    return faults


def check_other_tenant(scene: Scene, broker: Broker) -> list[str]:
    """Send every request as a user of another tenant who may do everything there."""
    scene.world.wait(broker.gate.tenants.create(BUILDER, tenant=TENANT))
    scene.control(lambda _: Recorder())
    for each in scene.brokers:
        _connect_as_tenant(each)
    before, faults = scene.fingerprint_besides(TENANT), []
    for case in CASES:
        answer = case.send(scene, broker, False)
        leaked = [one for one in HIDDEN_NAMES if one in answer.data]
        if leaked or PREFIX in answer.data:
            faults.append(f"{case} reveals {leaked or PREFIX}: {answer.data[:400]!r}")
        after = scene.fingerprint_besides(TENANT)
        if after != before:
            faults.append(f"{case} has an effect on another tenant")
            before = after
    own = [one.name for one in broker.topics if one.name.startswith(PREFIX.decode())]
    assert own, "the requests were those of another tenant"
    return faults


def _connect_as_tenant(broker: Broker) -> None:
    """Give every new connection the session of a user of the tenant."""
    authentication = broker.gate.authentication
    connect = authentication.session

    def session(client: ConnectedClient) -> Session:
        return msgspec.structs.replace(connect(client), tenant=TENANT)

    authentication.session = session  # type: ignore[method-assign]


@dataclass(frozen=True)
class Allowed:
    """What a request needed, and how it was answered."""

    outcome: object
    recorder: Recorder


def send_allowed(scene: Scene, front_end: str, broker: Broker) -> dict[Case, Allowed]:
    """Send the requests of a front end as somebody who may do everything."""
    found = {}
    for case in CASES:
        if case.front_end == front_end:
            recorder = Recorder()
            scene.control(lambda _, made=recorder: made)
            found[case] = Allowed(case.send(scene, broker, False).outcome, recorder)
    return found


def check_exact_rules(scene: Scene, allowed: dict[Case, Allowed], broker: Broker) -> list[str]:
    """Send the same requests with rules for what they needed; return the differences."""
    faults = []
    for case, known in allowed.items():
        made = Exactly(known.recorder.asked, known.recorder.asked_any)
        scene.control(lambda _, made=made: made)
        answer = case.send(scene, broker, False)
        if answer.outcome != known.outcome:
            faults.append(
                f"{case}: {known.outcome} with all rights, {answer.outcome} with those that were "
                f"checked: {sorted(known.recorder.asked)}"
            )
    return faults


@contextmanager
def operations_used() -> Iterator[set[str]]:
    """Note the operations of the gate that are called meanwhile, while access is controlled."""
    used: set[str] = set()
    original = Authoriser.authorise

    def authorise(self: Authoriser, session: Any, operation: Any, arguments: Any) -> None:
        used.add(operation.name)
        original(self, session, operation, arguments)

    Authoriser.authorise = authorise  # type: ignore[method-assign]
    try:
        yield used
    finally:
        Authoriser.authorise = original  # type: ignore[method-assign]
