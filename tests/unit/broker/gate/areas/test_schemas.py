"""The schema registry behind the gate: which subjects a call needs to be allowed for."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.schemas import (
    LATEST,
    ConfigChange,
    Request,
    SchemasArea,
    Subject,
    VersionView,
    read_subject,
)
from goqueue.model.access import CLUSTER, Access, Action, ResourceKind
from goqueue.model.errors import AccessDenied, SchemaRefused
from goqueue.schemas.scopes import Level
from tests.unit.broker.gate.areas.rules import ALICE, Only, access
from tests.unit.broker.node import Node
from tests.unit.schemas.desk import record

PLAIN = record(name="User", a="string")
WHOLE = Subject(".", "")
ALL = {"offset": 0, "limit": 100}


class Desk:
    def __init__(self) -> None:
        self.node = Node()
        self.wait = self.node.wait

    @property
    def area(self) -> SchemasArea:
        return self.node.broker.gate.schemas

    def allow(self, *allowed: Access) -> Only:
        self.node.broker.gate.policy = policy = Only(*allowed)
        return policy

    def register(self, subject: str) -> VersionView:
        registered = self.area.register(
            ALICE,
            subject=read_subject(subject),
            request=Request(PLAIN),
            normalize=False,
            force=False,
        )
        return self.wait(registered)

    def show(self, subject: str) -> VersionView:
        shown = self.area.show_version(
            ALICE, subject=read_subject(subject), number=LATEST, with_deleted=False, form=""
        )
        return self.wait(shown)


def of(action: Action, subject: str) -> Access:
    return access(action, ResourceKind.SUBJECT, subject)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_subjects_are_named_with_their_context(desk: Desk) -> None:
    policy = desk.allow(of(Action.WRITE, ":.sales:users"))
    assert desk.register(":.sales:users").subject == Subject(".sales", "users")
    with pytest.raises(AccessDenied):
        desk.register("users")
    assert policy.checked == [of(Action.WRITE, ":.sales:users"), of(Action.WRITE, "users")]


def test_an_alias_needs_both_subjects(desk: Desk) -> None:
    desk.register("users")
    change = ConfigChange(alias="users")
    desk.wait(desk.area.set_config(ALICE, subject=read_subject("people"), change=change))
    assert desk.show("people").subject == read_subject("users")
    desk.allow(of(Action.READ, "people"))
    with pytest.raises(AccessDenied, match="subject 'people'"):  # The target stays unknown.
        desk.show("people")
    desk.allow(of(Action.READ, "people"), of(Action.READ, "users"))
    assert desk.show("people").number == 1


def test_an_id_can_be_read_by_whoever_reads_a_subject_that_has_it(desk: Desk) -> None:
    schema = desk.register("users").schema
    desk.register("people")
    desk.allow(of(Action.READ, "people"), of(Action.DESCRIBE, "people"))
    shown = desk.area.show_schema(ALICE, schema_id=schema.id, subject=None, form="")
    assert desk.wait(shown).schema == schema
    places = desk.area.list_places(ALICE, schema_id=schema.id, subject=None, with_deleted=False)
    assert desk.wait(places) == [("people", 1)]
    assert desk.wait(desk.area.show_guid(ALICE, guid=schema.guid, form="")) == schema
    desk.allow()
    for call in (
        desk.area.show_schema(ALICE, schema_id=schema.id, subject=None, form=""),
        desk.area.list_places(ALICE, schema_id=schema.id, subject=None, with_deleted=False),
        desk.area.show_guid(ALICE, guid=schema.guid, form=""),
        desk.area.list_ids(ALICE, guid=schema.guid),
    ):
        with pytest.raises(SchemaRefused, match="not found"):
            desk.wait(call)


def test_an_overview_of_subjects_needs_no_right_to_read_schemas(desk: Desk) -> None:
    for one in ("users", "people", ":.sales:users"):
        desk.register(one)

    def page(**query: object) -> tuple[list[str], bool]:
        whole = {
            "prefix": ":*:",
            "match": "",
            "only_deleted": False,
            "after": "",
            "limit": 100,
            **query,
        }
        found = desk.wait(desk.area.subjects(ALICE, **whole))  # type: ignore[arg-type]
        return [one.subject for one in found.subjects], found.is_last

    assert page() == ([":.sales:users", "people", "users"], True)
    assert page(limit=2) == ([":.sales:users", "people"], False)
    assert page(limit=2, after="people") == (["users"], True)
    assert page(match="peo") == (["people"], True)
    desk.allow(of(Action.DESCRIBE, "users"))
    assert page() == (["users"], True)
    [only] = desk.wait(
        desk.area.subjects(ALICE, prefix=":*:", match="", only_deleted=False, after="", limit=1)
    ).subjects
    assert (only.number, only.schema_id, only.kind, only.versions) == (1, 1, "AVRO", 1)
    desk.allow(of(Action.DELETE, "users"), of(Action.DESCRIBE, "users"))
    desk.wait(desk.area.delete_subject(ALICE, subject=read_subject("users"), permanent=False))
    assert page() == ([], True)
    assert page(only_deleted=True) == (["users"], True)


def test_lists_show_what_may_be_described_and_read(desk: Desk) -> None:
    for one in ("users", "people", ":.sales:users"):
        desk.register(one)
    listed = {"prefix": ":*:", "with_deleted": False, "only_deleted": False}
    assert desk.wait(desk.area.list_subjects(ALICE, **listed, **ALL)) == [
        ":.sales:users",
        "people",
        "users",
    ]
    assert desk.wait(desk.area.list_subjects(ALICE, **listed, offset=1, limit=1)) == ["people"]
    desk.allow(of(Action.DESCRIBE, "users"), of(Action.READ, "people"))
    assert desk.wait(desk.area.list_subjects(ALICE, **listed, **ALL)) == ["users"]
    schemas = desk.area.list_schemas(ALICE, prefix="", with_deleted=False, latest_only=False, **ALL)
    assert [str(one.subject) for one in desk.wait(schemas)] == ["people"]
    assert desk.wait(desk.area.list_contexts(ALICE, prefix="", **ALL)) == []


def test_settings_of_the_whole_registry_are_those_of_the_cluster(desk: Desk) -> None:
    desk.allow(Access(Action.ALTER_CONFIGS, CLUSTER))
    change = ConfigChange(level=Level.NONE)
    desk.wait(desk.area.set_config(ALICE, subject=WHOLE, change=change))
    with pytest.raises(AccessDenied):
        desk.wait(desk.area.set_config(ALICE, subject=read_subject("users"), change=change))
    desk.allow(of(Action.DESCRIBE_CONFIGS, "users"))
    shown = desk.area.show_config(ALICE, subject=read_subject("users"), with_inherited=True)
    assert desk.wait(shown).level is Level.NONE
