"""Schemas: subjects, versions, differences, compatibility, registration, deletion."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.console.browser import Api, Console
from tests.integration.waiting import eventually

LIST = "Subjects"


@pytest.fixture
def unique() -> str:
    """A name that no other test has, and that looks well in a picture."""
    return f"orders-{uuid.uuid4().hex[:6]}"


def order(*fields: dict[str, Any]) -> str:
    """An Avro schema with these fields after the id."""
    first = {"name": "id", "type": "long"}
    return json.dumps({"type": "record", "name": "Order", "fields": [first, *fields]})


TOTAL = {"name": "total", "type": "double", "default": 0}


def register(api: Api, subject: str, *schemas: str) -> None:
    for schema in schemas:
        api.post(f"/registry/subjects/{subject}/versions", {"schema": schema})


@pytest.fixture
def subject(api: Api, unique: str) -> str:
    """A subject with two versions."""
    register(api, f"{unique}-value", order(), order(TOTAL))
    return f"{unique}-value"


def test_subjects_are_listed_in_pages(console: Console, api: Api, unique: str) -> None:
    for number in range(27):
        register(api, f"{unique}-{number:02}", order())
    console.visit(f"schemas?match={unique}&limit=25", "Schemas")
    expect(console.rows(LIST)).to_have_count(25)
    console.check_accessibility()
    console.page.get_by_role("link", name="Next").click()
    expect(console.rows(LIST)).to_have_count(2)
    expect(console.rows(LIST).last).to_contain_text("avro")
    console.visit("schemas", "Schemas")
    console.page.get_by_label("Filter subjects").fill(f"{unique}-13")
    expect(console.rows(LIST)).to_have_count(1)
    console.picture("schemas")
    console.rows(LIST).get_by_role("link").click()
    console.heading(f"{unique}-13")


def test_versions_are_shown_and_compared(console: Console, subject: str) -> None:
    console.visit(f"schemas/{subject}", subject)
    shown = console.page.get_by_label("Schema", exact=True)
    expect(shown).to_contain_text('"total"')
    console.check_accessibility()
    console.picture("schema")
    console.page.get_by_role("combobox", name="Version").select_option("1")
    expect(shown).not_to_contain_text('"total"')
    expect(console.page).to_have_url(re.compile("version=1"))
    console.page.get_by_role("link", name="Difference").click()
    lines = console.page.locator(".difference")
    expect(lines.locator(".added")).to_contain_text(["+     {", '"total"'], use_inner_text=True)
    expect(lines.locator(".removed").filter(has_text='"id"')).to_have_count(0)
    console.check_accessibility()
    console.picture("schema-difference")


def test_compatibility_is_checked_before_registering(
    console: Console, api: Api, subject: str
) -> None:
    console.visit(f"schemas/{subject}/check", subject)
    text = console.page.get_by_label("New version")
    text.fill(order({"name": "customer", "type": "string"}))
    console.page.get_by_role("button", name="Check").click()
    verdict = console.page.get_by_role("main")
    expect(verdict).to_contain_text("Not compatible")
    expect(verdict).to_contain_text("customer")
    expect(verdict).to_contain_text("Compared with version 2:")
    expect(verdict).not_to_contain_text("oldSchemaVersion")
    console.check_accessibility()
    console.picture("schema-check")
    text.fill(order(TOTAL, {"name": "customer", "type": "string", "default": ""}))
    console.page.get_by_role("button", name="Check").click()
    expect(verdict.get_by_text("Compatible", exact=True)).to_be_visible()
    assert api.get(f"/registry/subjects/{subject}/versions") == [1, 2]
    text.fill("{")
    console.page.get_by_role("button", name="Check").click()
    expect(verdict).to_contain_text("The schema is not JSON")


def test_a_subject_and_its_next_version_are_registered(
    console: Console, api: Api, unique: str
) -> None:
    console.visit("schemas", "Schemas")
    console.page.get_by_role("button", name="Register schema").click()
    dialog = console.dialog("Register schema")
    dialog.get_by_label("Subject").fill(unique)
    dialog.get_by_label("Schema").fill(order())
    dialog.get_by_role("button", name="Register schema").click()
    console.heading(unique)
    console.page.get_by_role("button", name="Register version").click()
    dialog.get_by_label("Schema").fill(order({"name": "needed", "type": "string"}))
    console.allow_faults("409")
    dialog.get_by_role("button", name="Register schema").click()
    expect(dialog.get_by_role("alert")).to_contain_text("needed")
    dialog.get_by_label("Schema").fill(order(TOTAL))
    dialog.get_by_role("button", name="Register schema").click()
    expect(console.page.get_by_role("combobox", name="Version")).to_have_value("2")
    expect(console.page.get_by_label("Schema", exact=True)).to_contain_text('"total"')
    stored = api.get(f"/registry/subjects/{unique}/versions/2")["schema"]
    assert json.loads(stored)["fields"][1]["name"] == "total"


def test_the_level_of_compatibility_is_changed(console: Console, api: Api, subject: str) -> None:
    console.visit(f"schemas/{subject}/config", subject)
    console.page.get_by_role("combobox", name="Compatibility").select_option("FULL_TRANSITIVE")
    expect(console.page.get_by_role("status").get_by_text("Saved")).to_be_visible()
    assert api.get(f"/registry/config/{subject}")["compatibilityLevel"] == "FULL_TRANSITIVE"
    console.check_accessibility()


def test_a_subject_is_deleted_when_its_name_is_typed(
    console: Console, api: Api, subject: str
) -> None:
    console.visit(f"schemas/{subject}", subject)
    console.page.get_by_role("button", name="Delete subject").click()
    dialog = console.dialog("Delete subject")
    dialog.get_by_label(f"Type {subject} to confirm").fill(subject)
    dialog.get_by_role("button", name="Delete subject").click()
    console.heading("Schemas")
    assert api.status(f"/registry/subjects/{subject}/versions") == 404
    console.page.get_by_label("Which subjects").select_option(label="Deleted subjects")
    console.rows(LIST).filter(has_text=subject).get_by_role("link").click()
    console.heading(subject)
    console.page.get_by_role("button", name="Delete subject").click()
    dialog = console.dialog("Delete subject permanently")
    dialog.get_by_label(f"Type {subject} to confirm").fill(subject)
    dialog.get_by_role("button", name="Delete subject permanently").click()
    console.heading("Schemas")
    assert api.status(f"/registry/subjects/{subject}/versions?deleted=true") == 404


def test_a_version_is_deleted_restored_and_removed_for_good(
    console: Console, api: Api, subject: str
) -> None:
    register(api, subject, order(TOTAL, {"name": "note", "type": "string", "default": ""}))
    console.visit(f"schemas/{subject}/difference?version=2", subject)
    console.page.get_by_role("button", name="Delete version 2").click()
    console.dialog("Delete version 2").get_by_role("button", name="Delete version 2").click()
    expect(console.page.get_by_role("status").get_by_text("can be restored")).to_be_visible()
    assert api.get(f"/registry/subjects/{subject}/versions") == [1, 3]
    # The version before the newest is the first one now.
    expect(console.page.get_by_role("combobox", name="compared with")).to_have_value("1")
    expect(console.page.locator(".difference .added").first).to_be_visible()
    console.page.get_by_role("checkbox", name="With deleted versions").check()
    console.page.get_by_role("combobox", name="Version").select_option("2")
    console.check_accessibility()
    console.page.get_by_role("button", name="Restore").click()
    console.dialog("Restore").get_by_role("button", name="Restore").click()
    expect(console.page.get_by_role("combobox", name="Version")).to_have_value("4")
    assert api.get(f"/registry/subjects/{subject}/versions") == [1, 3, 4]
    console.page.get_by_role("button", name="Delete version 4").click()
    console.dialog("Delete version 4").get_by_role("button", name="Delete version 4").click()
    console.page.get_by_role("checkbox", name="With deleted versions").check()
    console.page.get_by_role("button", name="Delete version 4").click()
    dialog = console.dialog("Delete version 4 permanently")
    dialog.get_by_label("to confirm").fill(f"{subject} 4")
    dialog.get_by_role("button", name="Delete version 4 permanently").click()
    expect(console.page.get_by_role("status").get_by_text("Removed permanently")).to_be_visible()
    assert api.get(f"/registry/subjects/{subject}/versions?deleted=true") == [1, 3]


def test_schemas_with_references_are_checked_and_registered(
    console: Console, api: Api, unique: str
) -> None:
    register(api, f"{unique}-user", '{"type": "record", "name": "User", "fields": []}')
    with_user = order({"name": "user", "type": "User"})
    references = [{"name": "User", "subject": f"{unique}-user", "version": 1}]
    body = {"schema": with_user, "references": references}
    api.post(f"/registry/subjects/{unique}/versions", body)
    console.visit(f"schemas/{unique}/check", unique)
    console.page.get_by_role("button", name="Check").click()
    expect(console.page.get_by_text("Compatible", exact=True)).to_be_visible()
    console.page.get_by_label("References").fill("User")
    console.page.get_by_role("button", name="Check").click()
    expect(console.page.get_by_role("alert")).to_contain_text("a name, a subject and a version")


def test_the_level_and_mode_of_the_registry_are_changed(console: Console, api: Api) -> None:
    console.visit("schemas", "Schemas")
    console.page.get_by_role("link", name="Registry", exact=True).click()
    mode = console.page.get_by_role("combobox", name="Mode")
    expect(mode).to_have_value("READWRITE")
    mode.select_option("READONLY")
    expect(console.page.get_by_role("status").get_by_text("Saved")).to_be_visible()
    assert api.get("/registry/mode") == {"mode": "READONLY"}
    api.put("/registry/mode", {"mode": "READWRITE"})
    console.page.get_by_role("combobox", name="Compatibility").select_option("FULL")
    console.check_accessibility()
    console.picture("schemas-registry")

    def level() -> str:
        return str(api.get("/registry/config")["compatibilityLevel"])

    eventually(lambda: level() == "FULL", because="the level is changed")
    api.put("/registry/config", {"compatibility": "BACKWARD"})
