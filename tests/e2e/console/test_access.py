"""A node with access control: signing in and out, and what each person sees and may change."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import OpenConsole
from tests.integration.security.secured import ADMIN, ADMIN_PASSWORD, SETTINGS, SecuredBroker
from tests.integration.waiting import eventually

READER_PASSWORD = "planted-Reader-passw0rd"
NO_CREDENTIALS = "401"


@pytest.fixture
def unique() -> str:
    """A name that no other test has, and that looks well in a picture."""
    return f"user-{uuid.uuid4().hex[:6]}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A node with an administrator, and a user `reader` who may read topics `open-…`."""
    settings = {
        **SETTINGS,
        "security.super_users": f"User:{ADMIN}",
        "security.audit": "on",
    }
    node = SecuredBroker(tmp_path_factory.mktemp("secured"), settings)
    try:
        node.start()
        node.create_user("reader", READER_PASSWORD)
        with node.as_admin() as api:
            for name in ("open-orders", "secret-orders"):
                assert api.post("/v1/topics", json={"name": name}).is_success
            later = {"value": "later", "delay_ms": 86_400_000}
            assert api.post("/v1/topics/open-orders/publish", json=later).is_success
            rules = [rule("TOPIC", "open-", "READ"), rule("GROUP", "open-", "READ")]
            assert api.post("/v1/acls", json={"acls": rules}).is_success
        yield node
    finally:
        node.close()


@pytest.fixture
def admin_api(secured: SecuredBroker) -> Iterator[Api]:
    _, secret = secured.create_key(ADMIN)
    api = Api(secured, Authorization=f"Bearer {secret}")
    yield api
    api.close()


@pytest.fixture
def locked(open_console: OpenConsole, secured: SecuredBroker) -> Console:
    """The console before anybody has signed in."""
    console = open_console(secured)
    console.allow_faults(NO_CREDENTIALS)
    return console


@pytest.fixture
def administration(locked: Console) -> Console:
    """The console of the administrator."""
    sign_in(locked, ADMIN, ADMIN_PASSWORD, "access")
    locked.heading("Access")
    return locked


def rule(kind: str, name: str, action: str, principal: str = "User:reader") -> dict[str, str]:
    return {
        "kind": kind,
        "pattern": "PREFIXED",
        "name": name,
        "principal": principal,
        "host": "*",
        "action": action,
        "permission": "ALLOW",
    }


def sign_in(console: Console, user: str, password: str, path: str = "") -> None:
    console.visit(path, "Sign in to GoQueue")
    console.page.get_by_label("User", exact=True).fill(user)
    console.page.get_by_label("Password", exact=True).fill(password)
    console.page.get_by_role("button", name="Sign in").click()


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in found]


# Signing in and out


def test_a_wrong_password_is_refused_and_the_right_one_opens_the_page_asked_for(
    locked: Console,
) -> None:
    sign_in(locked, ADMIN, "wrong", "topics")
    expect(locked.page.get_by_role("alert")).to_be_visible()
    locked.heading("Sign in to GoQueue")
    locked.check_accessibility()
    locked.picture("sign-in")
    locked.page.get_by_label("Password", exact=True).fill(ADMIN_PASSWORD)
    locked.page.get_by_role("button", name="Sign in").click()
    locked.heading("Topics")
    expect(locked.rows("Topics").filter(has_text="secret-orders")).to_have_count(1)
    locked.page.reload()
    locked.heading("Topics")
    locked.page.get_by_role("button", name="Sign out").click()
    locked.heading("Sign in to GoQueue")
    locked.page.reload()
    locked.heading("Sign in to GoQueue")
    assert locked.page.evaluate("sessionStorage.length + localStorage.length") <= 1


def test_a_key_signs_in_until_it_expires(
    locked: Console, secured: SecuredBroker, admin_api: Api
) -> None:
    key, secret = secured.create_key("reader")
    locked.visit("topics", "Sign in to GoQueue")
    locked.page.get_by_label("With").select_option(label="API key")
    locked.page.get_by_label("API key", exact=True).fill(secret)
    locked.page.get_by_role("button", name="Sign in").click()
    locked.heading("Topics")
    expect(locked.rows("Topics")).to_have_count(1)
    admin_api.delete(f"/v1/keys/{key}")
    locked.page.get_by_role("button", name="Refresh").click()
    locked.heading("Sign in to GoQueue")
    expect(locked.page.get_by_text("Your session has ended")).to_be_visible()
    expect(locked.page).to_have_url(re.compile("/console/topics"))


def test_people_see_only_what_they_may(locked: Console) -> None:
    sign_in(locked, "reader", READER_PASSWORD, "topics")
    locked.heading("Topics")
    expect(locked.rows("Topics")).to_have_count(1)
    expect(locked.rows("Topics")).to_contain_text("open-orders")
    pages = locked.page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link", name="Groups and queues")).to_be_visible()
    for hidden in ("Cluster", "Transactions", "Schemas", "Pipelines"):
        expect(pages.get_by_role("link", name=hidden)).to_have_count(0)
    expect(locked.page.get_by_role("button", name="Create topic")).to_have_count(0)
    locked.visit("topics/open-orders", "open-orders")
    for missing in ("Produce", "Delete", "Truncate"):
        expect(locked.page.get_by_role("button", name=missing)).to_have_count(0)
    locked.visit("groups", "Groups and queues")
    locked.page.get_by_role("button", name="Create group").click()
    # A queue group needs ALTER_CONFIGS, a stream group READ.
    kinds = locked.dialog("Create group").get_by_label("Kind").get_by_role("option")
    expect(kinds).to_have_text(["stream"])
    locked.visit("schedules?topic=open-orders", "Schedules")
    expect(locked.rows("Schedules")).to_have_count(1)
    expect(locked.page.get_by_text("Not allowed")).to_have_count(0)
    for missing in ("Move", "Cancel"):
        expect(locked.page.get_by_role("button", name=missing, exact=True)).to_have_count(0)
    locked.visit("access", "Access")
    tabs = locked.page.get_by_role("navigation", name="Access")
    expect(tabs.get_by_role("link")).to_have_text(["You", "Keys"])
    expect(locked.page.get_by_role("main")).to_contain_text("User:reader")
    expect(locked.page.get_by_role("main")).to_contain_text("Topicsread, describe")
    locked.check_accessibility()
    locked.picture("access-of-a-reader")


def test_an_auditor_sees_users_and_rules_without_buttons(
    locked: Console, secured: SecuredBroker, admin_api: Api, unique: str
) -> None:
    secured.create_user(unique, READER_PASSWORD)
    cluster = rule("CLUSTER", "kafka-cluster", "DESCRIBE", f"User:{unique}")
    cluster["pattern"] = "LITERAL"
    admin_api.post("/v1/acls", {"acls": [cluster]})
    sign_in(locked, unique, READER_PASSWORD, "access/acls")
    expect(locked.rows("Rules").first).to_be_visible()
    for missing in ("Create rule", "Delete rule"):
        expect(locked.page.get_by_role("button", name=missing)).to_have_count(0)
    locked.visit("access/roles", "Access")
    expect(locked.page.get_by_text("No roles")).to_be_visible()
    expect(locked.page.get_by_role("button", name="Create role")).to_have_count(0)
    # Quotas need DESCRIBE_CONFIGS besides.
    tabs = locked.page.get_by_role("navigation", name="Access").get_by_role("link")
    expect(tabs).to_have_text(["You", "Keys", "Users", "Rules", "Roles", "Tenants", "Audit log"])
    locked.visit("access/users?user=reader", "Access")
    keys = locked.dialog("Keys of reader")
    expect(keys.get_by_text("No keys")).to_be_visible()
    expect(keys.get_by_role("button", name="Create key")).to_have_count(0)
    locked.visit("access/keys", "Access")
    expect(locked.page.get_by_role("button", name="Create key")).to_be_visible()


def test_a_producer_sees_subjects_and_no_errors(
    locked: Console, secured: SecuredBroker, admin_api: Api, unique: str
) -> None:
    secured.create_user(unique, READER_PASSWORD)
    body = {"schema": '{"type": "record", "name": "Order", "fields": []}'}
    admin_api.post(f"/registry/subjects/{unique}-value/versions", body)
    grant = rule("SUBJECT", unique, "WRITE", f"User:{unique}")
    admin_api.post("/v1/acls", {"acls": [grant]})
    sign_in(locked, unique, READER_PASSWORD, "schemas")
    expect(locked.rows("Subjects")).to_have_count(1)
    expect(locked.rows("Subjects")).to_contain_text("avro")
    locked.rows("Subjects").get_by_role("link").click()
    locked.heading(f"{unique}-value")
    expect(locked.page.get_by_text("You may not read these schemas")).to_be_visible()
    expect(locked.page.get_by_role("button", name="Register version")).to_be_visible()
    expect(locked.page.get_by_role("alert")).to_have_count(0)


def test_who_may_only_read_reports_finds_them(
    locked: Console, secured: SecuredBroker, admin_api: Api, unique: str
) -> None:
    secured.create_user(unique, READER_PASSWORD)
    grant = rule("TOPIC", "goqueue.reports", "READ", f"User:{unique}") | {"pattern": "LITERAL"}
    admin_api.post("/v1/acls", {"acls": [grant]})
    sign_in(locked, unique, READER_PASSWORD)
    pages = locked.page.get_by_role("navigation", name="Pages")
    pages.get_by_role("link", name="Pipelines").click()
    locked.heading("Pipelines")
    tabs = locked.page.get_by_role("navigation", name="Pipelines").get_by_role("link")
    expect(tabs).to_have_text(["Reports"])
    expect(locked.page.get_by_text("No reports")).to_be_visible()
    expect(locked.page.get_by_role("alert")).to_have_count(0)


def test_one_changes_the_own_password_and_stays_signed_in(
    locked: Console, secured: SecuredBroker, unique: str
) -> None:
    secured.create_user(unique, READER_PASSWORD)
    sign_in(locked, unique, READER_PASSWORD, "access")
    locked.page.get_by_role("button", name="Change password").click()
    dialog = locked.dialog(f"Password of {unique}")
    dialog.get_by_label("Password").fill("planted-Changed-passw0rd")
    dialog.get_by_role("button", name="Set password").click()
    expect(dialog).to_be_hidden()
    locked.page.reload()
    locked.heading("Access")
    locked.page.get_by_role("button", name="Sign out").click()
    sign_in(locked, unique, "planted-Changed-passw0rd", "access")
    locked.heading("Access")


def test_what_is_not_allowed_is_said_and_not_shown(locked: Console) -> None:
    sign_in(locked, "reader", READER_PASSWORD, "topics")
    locked.heading("Topics")
    locked.allow_faults("40[34]")
    locked.visit("topics/secret-orders", "secret-orders")
    expect(locked.page.get_by_role("alert").first).to_be_visible()
    locked.visit("cluster", "Cluster")
    expect(locked.page.get_by_role("alert").first).to_contain_text("Not allowed")
    locked.visit("access/users", "Access")
    expect(locked.page.get_by_role("alert").first).to_contain_text("Not allowed")


# Users and keys


def test_users_are_created_disabled_and_deleted(
    administration: Console, admin_api: Api, unique: str
) -> None:
    name = unique
    administration.visit("access/users", "Access")
    administration.page.get_by_role("button", name="Create user").click()
    dialog = administration.dialog("Create user")
    dialog.get_by_label("User").fill(name)
    dialog.get_by_label("Password").fill("planted-Other-passw0rd")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_be_hidden()
    row = administration.rows("Users").filter(has_text=name)
    expect(row).to_contain_text("SCRAM-SHA-512")
    administration.check_accessibility()
    administration.picture("access-users")
    row.get_by_role("button", name="Disable").click()
    expect(row).to_contain_text("disabled")
    assert admin_api.get(f"/v1/users/{name}")["disabled"] is True
    row.get_by_role("button", name="Set password").click()
    dialog = administration.dialog(f"Password of {name}")
    dialog.get_by_label("Password").fill("planted-Third-passw0rd")
    dialog.get_by_role("button", name="Set password").click()
    expect(dialog).to_be_hidden()
    row.get_by_role("button", name=f"Delete {name}").click()
    dialog = administration.dialog("Delete user")
    dialog.get_by_label(f"Type {name} to confirm").fill(name)
    dialog.get_by_role("button", name="Delete user").click()
    expect(row).to_have_count(0)
    assert name not in names(admin_api.get("/v1/users")["users"])


def test_keys_are_created_shown_once_rotated_and_deleted(
    administration: Console, secured: SecuredBroker, admin_api: Api
) -> None:
    before = {one["id"] for one in admin_api.get("/v1/users/reader/keys")["keys"]}
    administration.visit("access/users?user=reader", "Access")
    drawer = administration.dialog("Keys of reader")
    drawer.get_by_role("button", name="Create key").click()
    dialog = administration.dialog("Create key")
    dialog.get_by_label("Description").fill("for the nightly job")
    dialog.get_by_role("button", name="Create").click()
    expect(drawer).to_contain_text("It is shown once")
    administration.check_accessibility()
    administration.picture("access-keys")
    [made] = [
        one for one in admin_api.get("/v1/users/reader/keys")["keys"] if one["id"] not in before
    ]
    assert made["description"] == "for the nightly job"
    assert made["expires_at"] - made["created_at"] == pytest.approx(90 * 86_400_000, abs=60_000)
    secret = drawer.locator("code").nth(1).inner_text()
    assert Api(secured, Authorization=f"Bearer {secret}").get("/v1/whoami")["key"] == made["id"]
    row = drawer.locator("tr").filter(has_text=made["id"])
    row.get_by_role("button", name="Rotate").click()
    expect(drawer.locator("code").nth(1)).not_to_have_text(secret)
    row.get_by_role("button", name=f"Delete {made['id']}").click()
    dialog = administration.dialog("Delete key")
    dialog.get_by_role("button", name="Delete key").click()
    expect(row).to_have_count(0)
    assert secured_status(secured, secret) == 401


def secured_status(node: SecuredBroker, secret: str) -> int:
    return Api(node, Authorization=f"Bearer {secret}").status("/v1/whoami")


# Rules, roles, quotas, tenants


def test_rules_are_created_tested_and_deleted(administration: Console, admin_api: Api) -> None:
    administration.visit("access/acls", "Access")
    question = administration.page.get_by_role("region", name="May they?")

    def ask() -> None:
        question.get_by_label("Principal").fill("User:writer")
        question.get_by_label("Action").select_option("WRITE")
        question.get_by_label("Resource").fill("parcels-1")
        question.get_by_role("button", name="Test").click()

    ask()
    expect(question).to_contain_text("Denied")
    administration.page.get_by_role("button", name="Create rule").click()
    dialog = administration.dialog("Create rule")
    dialog.get_by_label("Principal").fill("User:writer")
    dialog.get_by_label("Action").select_option("WRITE")
    dialog.get_by_label("Pattern").select_option("PREFIXED")
    dialog.get_by_label("Resource").fill("parcels-")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_be_hidden()
    ask()
    expect(question).to_contain_text("Allowed")
    row = administration.rows("Rules").filter(has_text="User:writer")
    expect(row).to_contain_text("parcels-*")
    administration.check_accessibility()
    administration.picture("access-rules")
    [stored] = admin_api.get("/v1/acls", principal="User:writer")["acls"]
    assert (stored["action"], stored["pattern"], stored["name"]) == (
        "WRITE",
        "PREFIXED",
        "parcels-",
    )
    row.get_by_role("button", name="Delete rule").click()
    administration.dialog("Delete rule").get_by_role("button", name="Delete rule").click()
    expect(row).to_have_count(0)
    assert admin_api.get("/v1/acls", principal="User:writer")["acls"] == []


def test_roles_are_given_and_taken(administration: Console, admin_api: Api) -> None:
    administration.visit("access/roles", "Access")
    administration.page.get_by_role("button", name="Create role").click()
    dialog = administration.dialog("Create role")
    dialog.get_by_label("Role").fill("auditors")
    dialog.get_by_label("Members").fill("User:reader, User:alice")
    dialog.get_by_role("button", name="Create role").click()
    row = administration.rows("Roles").filter(has_text="auditors")
    expect(row).to_contain_text("User:alice")
    administration.check_accessibility()
    administration.picture("access-roles")
    row.get_by_role("button", name="Remove User:alice").click()
    expect(row).not_to_contain_text("User:alice")
    [role] = [one for one in admin_api.get("/v1/roles")["roles"] if one["name"] == "auditors"]
    assert role["members"] == ["User:reader"]
    row.get_by_role("button", name="Delete auditors").click()
    dialog = administration.dialog("Delete role")
    dialog.get_by_label("Type auditors to confirm").fill("auditors")
    dialog.get_by_role("button", name="Delete role").click()
    expect(row).to_have_count(0)
    assert "auditors" not in names(admin_api.get("/v1/roles")["roles"])


def test_a_quota_is_set_and_removed(administration: Console, admin_api: Api) -> None:
    administration.visit("access/quotas", "Access")

    def set_to(value: str) -> None:
        administration.page.get_by_role("button", name="Set quota").click()
        dialog = administration.dialog("Set quota")
        dialog.get_by_label("User", exact=True).fill("reader")
        dialog.get_by_label("Limit").select_option("producer_byte_rate")
        dialog.get_by_label("Value").fill(value)
        dialog.get_by_role("button", name="Set quota").click()
        expect(dialog).to_be_hidden()

    set_to("1048576")
    row = administration.rows("Quotas").filter(has_text="user reader")
    expect(row).to_contain_text("producer_byte_rate 1.00 MiB/s")
    administration.check_accessibility()
    administration.picture("access-quotas")
    [quota] = admin_api.get("/v1/quotas")["quotas"]
    assert (quota["entity"], quota["limits"]) == (
        {"user": "reader"},
        {"producer_byte_rate": 1_048_576},
    )
    set_to("")
    expect(row).to_have_count(0)
    assert admin_api.get("/v1/quotas")["quotas"] == []


def test_a_quota_of_a_user_with_a_client_is_set(administration: Console, admin_api: Api) -> None:
    administration.visit("access/quotas", "Access")
    administration.page.get_by_role("button", name="Set quota").click()
    dialog = administration.dialog("Set quota")
    dialog.get_by_label("Kind").select_option("user and client-id")
    dialog.get_by_label("User", exact=True).fill("reader")
    dialog.get_by_label("Limit").select_option("request_rate")
    dialog.get_by_label("Value").fill("20")
    dialog.get_by_role("button", name="Set quota").click()
    row = administration.rows("Quotas")
    expect(row).to_contain_text("request_rate 20 requests/s")
    [quota] = admin_api.get("/v1/quotas")["quotas"]
    assert quota["entity"] == {"user": "reader", "client-id": None}
    row.get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("Value")).to_have_value("20")
    dialog.get_by_label("Value").fill("")
    dialog.get_by_role("button", name="Set quota").click()
    expect(administration.page.get_by_text("No quotas")).to_be_visible()


def test_a_tenant_is_created_and_made_read_only(administration: Console, admin_api: Api) -> None:
    administration.visit("access/tenants", "Access")
    administration.page.get_by_role("button", name="Create tenant").click()
    dialog = administration.dialog("Create tenant")
    dialog.get_by_label("Tenant").fill("acme")
    dialog.get_by_role("button", name="Create").click()
    row = administration.rows("Tenants").filter(has_text="acme")
    row.get_by_role("button", name="Change state").click()
    dialog = administration.dialog("Change state")
    dialog.get_by_label("State").select_option("read_only")
    dialog.get_by_role("button", name="Change state").click()
    expect(row).to_contain_text("read only")
    administration.check_accessibility()
    administration.picture("access-tenants")
    assert admin_api.get("/v1/tenants/acme")["state"] == "read_only"
    row.get_by_role("link", name="acme").click()
    usage = administration.dialog("What acme has")
    expect(usage).to_contain_text("Partitions0")
    administration.check_accessibility()
    usage.get_by_role("button", name="Close").click()
    row.get_by_role("button", name="Delete acme").click()
    dialog = administration.dialog("Delete tenant")
    dialog.get_by_label("Type acme to confirm").fill("acme")
    dialog.get_by_role("button", name="Delete tenant").click()
    expect(row).to_have_count(0)
    assert admin_api.status("/v1/tenants/acme") == 404


def test_the_audit_log_says_who_did_what_and_was_refused(
    administration: Console, secured: SecuredBroker, admin_api: Api
) -> None:
    _, secret = secured.create_key("reader")
    assert Api(secured, Authorization=f"Bearer {secret}").status("/v1/topics/secret-orders") == 404
    denied = {"user": "reader", "outcome": "denied"}
    eventually(lambda: admin_api.get("/v1/audit", **denied)["events"], because="it is logged")
    administration.visit("access/audit", "Access")
    administration.page.get_by_label("User", exact=True).fill("reader")
    administration.page.get_by_label("Outcome").select_option("denied")
    row = administration.rows("Audit log").filter(has_text="secret-orders").first
    expect(row).to_contain_text("denied")
    expect(row).to_contain_text("reader")
    administration.check_accessibility()
    administration.picture("access-audit")
    row.get_by_role("button").click()
    expect(administration.dialog("Event")).to_contain_text('"secret-orders"')
