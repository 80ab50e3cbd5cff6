"""Deleting, settings and modes."""

from __future__ import annotations

import pytest

from goqueue.model.errors import SchemaRefusal, SchemaRefused
from goqueue.schemas import removal
from goqueue.schemas.names import EVERYTHING, Subject
from goqueue.schemas.scopes import Level, Mode, read_level, read_mode
from tests.unit.schemas.desk import Desk, record, subject

PLAIN = record(name="User", a="string")
WIDER = record(name="User", a="string", b="int?")
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "u", "type": "User"}]}'


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.register("users", PLAIN)
    desk.register("users", WIDER)
    return desk


def refused(call: pytest.ExceptionInfo[SchemaRefused]) -> SchemaRefusal:
    return call.value.reason


def test_a_deleted_version_is_hidden_and_its_id_is_not(desk: Desk) -> None:
    desk.delete("users", 1)
    assert desk.numbers("users") == [-1, 2]
    with pytest.raises(SchemaRefused) as call:
        desk.version("users", 1, with_deleted=False)
    assert refused(call) is SchemaRefusal.UNKNOWN_VERSION
    assert desk.registry.find_id(1).text == PLAIN


def test_forgetting_takes_two_steps(desk: Desk) -> None:
    with pytest.raises(SchemaRefused) as call:
        desk.delete("users", 1, permanent=True)
    assert refused(call) is SchemaRefusal.VERSION_NOT_DELETED
    desk.delete("users", 1)
    with pytest.raises(SchemaRefused) as call:
        desk.delete("users", 1)
    assert refused(call) is SchemaRefusal.VERSION_DELETED
    desk.delete("users", 1, permanent=True)
    assert desk.numbers("users") == [2]
    with pytest.raises(SchemaRefused) as call:
        desk.registry.find_id(1)
    assert refused(call) is SchemaRefusal.UNKNOWN_SCHEMA


def test_forgetting_a_subject_takes_two_steps(desk: Desk) -> None:
    desk.configure("users", Level.NONE)
    with pytest.raises(SchemaRefused) as call:
        desk.delete("users", permanent=True)
    assert refused(call) is SchemaRefusal.SUBJECT_NOT_DELETED
    desk.delete("users")
    with pytest.raises(SchemaRefused) as call:
        desk.delete("users")
    assert refused(call) is SchemaRefusal.SUBJECT_DELETED
    desk.delete("users", permanent=True)
    assert desk.numbers("users") == []
    assert desk.registry.scopes.own_config(subject("users")) is None
    with pytest.raises(SchemaRefused) as call:
        desk.delete("users")
    assert refused(call) is SchemaRefusal.UNKNOWN_SUBJECT


def test_the_last_version_takes_the_settings_with_it(desk: Desk) -> None:
    desk.configure("users", Level.NONE)
    for number in (1, 2):
        desk.delete("users", number)
        desk.delete("users", number, permanent=True)
    assert not desk.registry.scopes.has_config(subject("users"))


def test_an_id_that_another_subject_has_survives(desk: Desk) -> None:
    desk.register("people", PLAIN)
    for permanent in (False, True):
        desk.delete("users", permanent=permanent)
    assert desk.registry.find_id(1).text == PLAIN


def test_what_others_refer_to_stays(desk: Desk) -> None:
    desk.register("orders", ORDER, ("User", "users", 1))
    for number in (1, None):
        with pytest.raises(SchemaRefused, match="orders version 1") as call:
            desk.delete("users", number)
        assert refused(call) is SchemaRefusal.REFERENCED
    desk.delete("users", 2)
    desk.delete("orders")
    desk.delete("users", 1)
    with pytest.raises(SchemaRefused) as call:
        desk.delete("users", 1, permanent=True)
    assert refused(call) is SchemaRefusal.REFERENCED
    desk.delete("orders", permanent=True)
    desk.delete("users", permanent=True)


def test_settings_come_from_the_nearest_that_has_some(desk: Desk) -> None:
    scopes = desk.registry.scopes
    assert scopes.config(subject("users")).level is Level.BACKWARD
    desk.configure(":.__GLOBAL:", Level.FULL_TRANSITIVE)
    assert scopes.config(subject("users")).level is Level.FULL_TRANSITIVE
    desk.configure(level=Level.FORWARD)
    desk.configure(":.sales:", Level.NONE)
    assert scopes.config(subject("users")).level is Level.FORWARD
    assert scopes.config(subject(":.sales:users")).level is Level.NONE
    desk.configure("users", normalize=True)
    own = scopes.config(subject("users"))
    assert (own.level, own.normalize) == (Level.FORWARD, True)
    assert scopes.own_config(subject("people")) is None


def test_settings_that_are_taken_away_are_those_that_were_there(desk: Desk) -> None:
    with pytest.raises(SchemaRefused) as call:
        removal.delete_config(desk.registry, subject("users"))
    assert refused(call) is SchemaRefusal.UNKNOWN_SUBJECT
    desk.configure("users", Level.FULL)
    before, changes = removal.delete_config(desk.registry, subject("users"))
    desk.write(changes)
    assert before.level is Level.FULL
    assert desk.registry.scopes.own_config(subject("users")) is None


@pytest.mark.parametrize("mode", [Mode.READONLY, Mode.READONLY_OVERRIDE])
def test_a_read_only_subject_only_reads(desk: Desk, mode: Mode) -> None:
    desk.set_mode(mode, "users")
    for change in (
        lambda: desk.register("users", record(name="User", c="int?")),
        lambda: desk.delete("users"),
        lambda: desk.delete("users", 1),
        lambda: desk.configure("users", Level.NONE),
    ):
        with pytest.raises(SchemaRefused) as call:
            change()
        assert refused(call) is SchemaRefusal.NOT_PERMITTED
    desk.register("people", PLAIN)


def test_an_override_is_stronger_than_what_a_subject_says(desk: Desk) -> None:
    desk.set_mode(Mode.READWRITE, "users")
    desk.set_mode(Mode.READONLY)
    desk.delete("users", 2)
    desk.set_mode(Mode.READONLY_OVERRIDE)
    with pytest.raises(SchemaRefused):
        desk.delete("users", 1)


def test_an_import_brings_its_own_ids(desk: Desk) -> None:
    with pytest.raises(SchemaRefused, match="not in import mode"):
        desk.register("copy", PLAIN, id=77)
    with pytest.raises(SchemaRefused, match="exists"):
        desk.set_mode(Mode.IMPORT)
    desk.set_mode(Mode.IMPORT, "copy")
    with pytest.raises(SchemaRefused, match="another schema"):
        desk.register("copy", WIDER, id=1)
    made = desk.register("copy", record(name="Odd", z="int"), id=77, version=5)
    assert (made.number, made.content.id) == (5, 77)
    earlier = desk.register("copy", record(name="Odd", y="int"), id=70, version=3)
    assert (earlier.number, desk.numbers("copy")) == (3, [3, 5])
    assert desk.register("new", record(name="New", x="int")).content.id == 78


def test_an_import_may_be_forced_and_forgets_what_was_deleted(desk: Desk) -> None:
    desk.delete("users")
    desk.set_mode(Mode.IMPORT)
    assert desk.numbers("users") == []
    desk.set_mode(Mode.READWRITE)
    desk.register("users", PLAIN)
    desk.set_mode(Mode.IMPORT, force=True)
    assert desk.numbers("users") == [1]


def test_modes_of_a_context_can_all_be_taken_away(desk: Desk) -> None:
    desk.set_mode(Mode.READONLY, ":.sales:a")
    desk.set_mode(Mode.READONLY, "a")
    before, changes = removal.delete_mode(desk.registry, Subject(".sales", ""), recursive=True)
    desk.write(changes)
    assert before is None
    assert desk.registry.scopes.own_mode(subject(":.sales:a")) is None
    assert desk.registry.scopes.own_mode(subject("a")) is Mode.READONLY
    with pytest.raises(SchemaRefused):
        removal.delete_mode(desk.registry, subject("nobody"), recursive=False)
    assert desk.registry.scopes.own_mode(EVERYTHING) is Mode.READWRITE


def test_words_are_read_in_any_case_and_others_are_refused() -> None:
    assert read_level("full_transitive") is Level.FULL_TRANSITIVE
    assert read_mode("readonly") is Mode.READONLY
    with pytest.raises(SchemaRefused) as call:
        read_level("SOMETIMES")
    assert refused(call) is SchemaRefusal.INVALID_LEVEL
    with pytest.raises(SchemaRefused) as call:
        read_mode("FORWARD")
    assert refused(call) is SchemaRefusal.INVALID_MODE
