"""What may be registered, and which ids and versions come of it."""

from __future__ import annotations

import json

import pytest

from goqueue.model.errors import InvalidSchema, SchemaRefusal, SchemaRefused
from goqueue.schemas.drafts import Request
from goqueue.schemas.formats import SCHEMA_BYTES_MAX, SchemaKind
from goqueue.schemas.names import EVERYTHING
from goqueue.schemas.registry import LATEST
from goqueue.schemas.scopes import Level, Mode
from tests.unit.schemas.desk import Desk, record, subject

PLAIN = record(name="User", a="string")
WIDER = record(name="User", a="string", b="int?")


def refusal(call: pytest.ExceptionInfo[SchemaRefused]) -> SchemaRefusal:
    return call.value.reason


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_versions_count_from_one_and_ids_too(desk: Desk) -> None:
    first, second = desk.register("users", PLAIN), desk.register("users", WIDER)
    assert [(one.number, one.content.id) for one in (first, second)] == [(1, 1), (2, 2)]


def test_one_schema_has_one_id_under_all_subjects(desk: Desk) -> None:
    first = desk.register("users", PLAIN)
    second = desk.register("people", PLAIN)
    assert first.content is second.content
    assert second.number == 1
    assert desk.register("orders", WIDER).content.id == 2


def test_registering_again_changes_nothing(desk: Desk) -> None:
    desk.register("users", PLAIN)
    written = len(desk.log)
    again = desk.register("users", json.dumps(json.loads(PLAIN), indent=4))
    assert (again.number, again.content.id) == (1, 1)
    assert len(desk.log) == written


def test_the_text_that_came_first_is_kept(desk: Desk) -> None:
    spread = json.dumps(json.loads(PLAIN), indent=4)
    assert desk.register("users", spread).content.text == spread
    assert desk.register("people", PLAIN).content.text == spread


def test_a_text_in_two_languages_is_two_schemas(desk: Desk) -> None:
    text = '{"type": "string"}'
    assert desk.register("a", text).content.id == 1
    assert desk.register("b", text, kind=SchemaKind.JSON).content.id == 2


def test_an_empty_schema_and_one_that_is_too_large_are_refused(desk: Desk) -> None:
    with pytest.raises(InvalidSchema, match="Empty schema"):
        desk.register("users", "  ")
    with pytest.raises(SchemaRefused) as call:
        desk.register("users", " " * (SCHEMA_BYTES_MAX + 1))
    assert refusal(call) is SchemaRefusal.TOO_LARGE


@pytest.mark.parametrize("name", ["", "__GLOBAL", "a\nb", "x" * 2000, ":.ctx:", ":.__GLOBAL:a"])
def test_a_name_that_is_none_is_refused(desk: Desk, name: str) -> None:
    with pytest.raises(SchemaRefused) as call:
        desk.register(name, PLAIN)
    assert refusal(call) is SchemaRefusal.INVALID_SUBJECT


def test_a_version_of_ones_own_must_be_the_next(desk: Desk) -> None:
    desk.register("users", PLAIN, version=1)
    with pytest.raises(InvalidSchema, match="next version of users is 2"):
        desk.register("users", WIDER, version=5)
    assert desk.register("users", WIDER, version=2).number == 2


def test_metadata_is_inherited_and_makes_a_schema_another(desk: Desk) -> None:
    told = {"properties": {"owner": "billing"}}
    first = desk.register("users", PLAIN, metadata=told)
    assert desk.register("people", PLAIN).content.id != first.content.id
    assert desk.register("users", PLAIN) is first
    assert desk.register("users", WIDER).content.metadata == told


def test_a_lookup_without_metadata_finds_the_version_that_has_some(desk: Desk) -> None:
    first = desk.register("users", PLAIN, metadata={"properties": {"owner": "billing"}})
    parsed = desk.registry.draft(subject("users"), Request(PLAIN), normalize=False).parse()
    assert desk.registry.find_like(parsed) is first


# Compatibility


CHANGES = {
    # What is done to the schema: is the new one backward, and is it forward compatible?
    "adds a field with a default": (WIDER, True, True),
    "adds a field without": (record(name="User", a="string", b="int"), False, True),
    "removes a field": (record(name="User"), True, False),
    "changes a type": (record(name="User", a="int"), False, False),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("level", Level)
def test_a_level_refuses_what_it_must(desk: Desk, level: Level, change: str) -> None:
    text, is_backward, is_forward = CHANGES[change]
    desk.register("users", PLAIN)
    desk.configure("users", level)
    is_fine = (is_backward or not level.is_backward) and (is_forward or not level.is_forward)
    if is_fine:
        assert desk.register("users", text).number == 2
    else:
        with pytest.raises(SchemaRefused, match="oldSchemaVersion: 1") as call:
            desk.register("users", text)
        assert refusal(call) is SchemaRefusal.INCOMPATIBLE


@pytest.mark.parametrize("level", [Level.BACKWARD, Level.FORWARD, Level.FULL])
def test_only_the_transitive_levels_look_further_back(desk: Desk, level: Level) -> None:
    oldest = record(name="User", a="string")
    between = record(name="User", b="int?")
    newest = record(name="User", a="int?", b="int?")
    desk.configure("users", Level.NONE)
    desk.register("users", oldest)
    desk.register("users", between)
    desk.configure("users", Level(f"{level}_TRANSITIVE"))
    with pytest.raises(SchemaRefused, match="oldSchemaVersion: 1"):
        desk.register("users", newest)
    desk.configure("users", level)
    assert desk.register("users", newest).number == 3


def test_a_deleted_version_is_not_compared_with(desk: Desk) -> None:
    desk.register("users", PLAIN)
    desk.delete("users", 1)
    assert desk.register("users", record(name="User", z="int")).number == 2


def test_another_language_never_follows(desk: Desk) -> None:
    desk.register("users", PLAIN)
    with pytest.raises(SchemaRefused, match="JSON schema cannot follow a AVRO"):
        desk.register("users", '{"type": "object"}', kind=SchemaKind.JSON)


def test_compatibility_groups_do_not_meet(desk: Desk) -> None:
    desk.configure("users", Level.BACKWARD, group="major")
    first = {"properties": {"major": "1"}}
    desk.register("users", PLAIN, metadata=first)
    breaking = record(name="User", a="int")
    with pytest.raises(SchemaRefused):
        desk.register("users", breaking, metadata=first)
    assert desk.register("users", breaking, metadata={"properties": {"major": "2"}}).number == 2


# References


def test_a_reference_must_lead_somewhere(desk: Desk) -> None:
    text = '{"type": "record", "name": "Order", "fields": [{"name": "u", "type": "User"}]}'
    with pytest.raises(InvalidSchema, match="register it first"):
        desk.register("orders", text, ("User", "users", 1))
    desk.register("users", PLAIN)
    made = desk.register("orders", text, ("User", "users", 1))
    user = desk.version("users", 1)
    assert desk.registry.referrers(user, with_deleted=False) == [made]


def test_a_reference_to_the_newest_is_pinned(desk: Desk) -> None:
    desk.register("users", PLAIN)
    text = '{"type": "record", "name": "Order", "fields": [{"name": "u", "type": "User"}]}'
    made = desk.register("orders", text, ("User", "users", LATEST))
    desk.register("users", WIDER)
    assert [one.version for one in made.content.references] == [1]


def test_references_of_references_are_followed(desk: Desk) -> None:
    desk.register("a", record(name="A", x="int"))
    desk.register(
        "b",
        '{"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]}',
        ("A", "a", 1),
    )
    made = desk.register(
        "c",
        '{"type": "record", "name": "C", "fields": [{"name": "b", "type": "B"}]}',
        ("B", "b", 1),
    )
    assert desk.registry.source(made.content).read().text == made.content.text


# Ids stay


def test_an_id_is_never_given_twice(desk: Desk) -> None:
    desk.register("users", PLAIN)
    desk.register("users", WIDER)
    for permanent in (False, True):
        desk.delete("users", permanent=permanent)
    desk.restart()
    assert desk.register("users", record(name="Other", z="int")).content.id == 3


def test_a_schema_that_comes_back_has_its_old_id_and_a_new_version(desk: Desk) -> None:
    desk.register("users", PLAIN)
    desk.delete("users")
    again = desk.register("users", PLAIN)
    assert (again.number, again.content.id) == (2, 1)
    assert desk.numbers("users") == [2]


def test_compaction_and_a_restart_change_nothing(desk: Desk) -> None:
    desk.configure(level=Level.FULL)
    desk.configure("users", Level.NONE, normalize=True)
    desk.register("users", PLAIN)
    desk.register("users", WIDER)
    desk.register(":.sales:users", PLAIN)
    desk.delete("users", 1)
    desk.set_mode(Mode.READONLY, "frozen")
    before = _picture(desk)
    desk.restart()
    assert _picture(desk) == before
    desk.restart()
    assert _picture(desk) == before


def _picture(desk: Desk) -> object:
    registry = desk.registry
    return (
        [
            (str(one.subject), one.number, one.content.id, one.content.guid, one.is_deleted)
            for name in registry.catalog.subjects()
            for one in registry.catalog.versions(name)
        ],
        registry.catalog.contexts(),
        [registry.catalog.next_id(one) for one in registry.catalog.contexts()],
        registry.scopes.config(EVERYTHING),
        registry.scopes.own_config(subject("users")),
        registry.scopes.own_mode(subject("frozen")),
    )


# Contexts


def test_contexts_have_ids_of_their_own(desk: Desk) -> None:
    desk.register("orders", WIDER)
    made = desk.register(":.sales:users", PLAIN)
    assert made.content.id == 1
    assert desk.registry.catalog.contexts() == [".", ".sales"]
    assert desk.registry.find_id(1).text == WIDER
    assert desk.registry.find_id(1, subject(":.sales:")).text == PLAIN


def test_a_bare_name_finds_its_namesake_in_another_context(desk: Desk) -> None:
    made = desk.register(":.sales:users", PLAIN)
    assert desk.version("users") is made
    assert desk.registry.find_id(1, subject("users")) is made.content
    with pytest.raises(SchemaRefused):
        desk.registry.find_id(1)


def test_a_reference_stays_in_its_context(desk: Desk) -> None:
    desk.register(":.sales:users", PLAIN)
    text = '{"type": "record", "name": "Order", "fields": [{"name": "u", "type": "User"}]}'
    with pytest.raises(InvalidSchema):
        desk.register("orders", text, ("User", "users", 1))
    made = desk.register(":.sales:orders", text, ("User", "users", 1))
    assert desk.registry.referrers(desk.version(":.sales:users"), with_deleted=False) == [made]
