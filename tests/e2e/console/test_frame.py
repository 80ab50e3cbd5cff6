"""What all pages share: policy, keyboard, themes, narrow windows, and a node that is away."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from goqueue.client import LogClient
from tests.e2e.conftest import write
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import NewTopic, OpenConsole
from tests.integration.process import Broker

NARROW = (390, 820)  # a telephone, half a screen


def test_the_policy_of_the_page_is_strict(broker: Broker) -> None:
    page = httpx.get(f"{broker.http}/console/topics", headers={"accept": "text/html"})
    policy = dict(
        part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert page.headers["x-frame-options"] == "DENY"
    assert "<script>" not in page.text


def test_an_injected_script_does_not_run(console: Console) -> None:
    """The check of all other tests, that nothing breaks the policy, would notice a breach."""
    console.visit("topics", "Topics")
    console.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend',"
        " '<img src=/console/icon.none onerror=\"document.title=1\">')"
    )
    with console.page.expect_console_message(lambda one: "Content Security Policy" in one.text):
        console.page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'),"
            " {textContent: 'window.injected = true'}))"
        )
    assert console.page.evaluate("window.injected") is None
    with pytest.raises(AssertionError, match="Content Security Policy"):
        console.check_faults()
    console.allow_faults("Content Security Policy|icon.none")


def test_an_unused_node_and_one_that_goes_away(open_console: OpenConsole, fresh: Broker) -> None:
    console = open_console(fresh)
    page = console.page
    console.visit("overview", "Overview")
    expect(page.get_by_role("heading", name="No topics yet")).to_be_visible()
    expect(page.get_by_role("heading", name="No groups yet")).to_be_visible()
    console.visit("topics", "Topics")
    expect(page.get_by_role("heading", name="No topics yet")).to_be_visible()
    console.check_accessibility()
    api = Api(fresh)
    api.post("/v1/topics", {"name": "orders", "partitions": 2})
    page.get_by_role("button", name="Refresh").click()
    expect(console.rows("Topics")).to_have_count(1)

    console.allow_faults("ERR_CONNECTION|ERR_EMPTY_RESPONSE|status 503|status of 503")
    fresh.stop()
    page.get_by_role("button", name="Refresh").click()
    expect(page.get_by_text("The node does not answer. What is shown may be old")).to_be_visible()
    expect(console.rows("Topics")).to_have_count(1)
    expect(page.get_by_role("alert").filter(has_text="No connection")).to_be_visible()
    console.check_accessibility()
    console.picture("offline")
    page.get_by_role("link", name="orders").click()
    console.heading("orders")
    expect(page.get_by_role("button", name="Try again").first).to_be_visible()

    fresh.start()
    expect(page.get_by_text("What is shown may be old")).to_have_count(0)
    page.get_by_role("link", name="Partitions", exact=True).click()
    expect(console.rows("Partitions")).to_have_count(2)
    expect(page.get_by_role("alert")).to_have_count(0)
    api.close()


def test_a_request_that_fails_is_shown_and_can_be_tried_again(
    console: Console, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    console.allow_faults("status 500|status of 500")
    page.route("**/v1/**/partitions?*", lambda route: route.fulfill(status=500, body="broken"))
    console.visit(f"topics/{topic}/partitions", topic)
    alert = page.get_by_role("alert").filter(has_text="That did not work")
    expect(alert).to_contain_text("broken")
    console.check_accessibility()
    page.unroute("**/v1/**/partitions?*")
    alert.get_by_role("button", name="Try again").click()
    expect(console.rows("Partitions")).to_have_count(1)
    expect(alert).to_have_count(0)


def test_everything_is_within_reach_of_the_keyboard(
    console: Console, client: LogClient, new_topic: NewTopic
) -> None:
    topic, page = new_topic(name="shop.baskets"), console.page
    write(client, topic, [b"first", b"second"])
    console.visit("overview", "Overview")
    page.keyboard.press("g")
    page.keyboard.press("t")
    console.heading("Topics")
    page.keyboard.press("/")
    page.keyboard.type(topic)
    rows = console.rows("Topics")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(topic)
    console.table("Topics").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name=topic)).to_be_focused()
    page.keyboard.press("Enter")
    console.heading(topic)

    label = f"Messages of {topic}"
    expect(console.rows(label)).to_have_count(2)
    console.table(label).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(console.dialog(re.compile("offset 0")).locator("pre")).to_have_text("first")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Open partition 0, offset 0")).to_be_focused()

    page.keyboard.press("?")
    expect(console.dialog("Keyboard shortcuts")).to_be_visible()
    console.check_accessibility()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type(topic)
    palette = console.dialog("Go to")
    expect(palette.get_by_role("combobox")).to_have_value(topic)
    expect(palette.get_by_role("option", name=topic)).to_be_visible()
    console.check_accessibility()
    console.picture("palette")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("create")
    page.keyboard.press("Enter")
    expect(console.dialog("Create topic")).to_be_visible()
    expect(console.dialog("Create topic").get_by_label("Topic")).to_be_focused()


def test_the_theme_is_the_systems_until_a_person_chooses(console: Console) -> None:
    page, root = console.page, console.page.locator("html")
    console.visit("topics", "Topics")
    console.choose_theme("dark")
    console.choose_theme("light")
    page.get_by_role("button", name="Dark theme").click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    console.heading("Topics")
    expect(root).to_have_attribute("data-theme", "dark")
    page.keyboard.press("T")
    expect(root).to_have_attribute("data-theme", "light")


@pytest.mark.parametrize("width", NARROW)
def test_pages_fit_into_narrow_windows(
    open_console: OpenConsole, broker: Broker, api: Api, new_topic: NewTopic, width: int
) -> None:
    topic = new_topic(name=f"shop.returns-{width}")
    api.post(f"/v1/topics/{topic}/publish", {"key": "k" * 80, "value": "v" * 500})
    console = open_console(broker, viewport={"width": width, "height": 800})
    for path in ("overview", "topics", f"topics/{topic}", f"topics/{topic}/settings"):
        console.visit(path)
        expect(console.page.get_by_role("heading", level=1)).to_be_visible()
        expect(console.page.locator(".skeleton")).to_have_count(0)
        over = console.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert over <= 0, f"{path} is {over} pixels too wide for {width}"
        for link in console.page.locator("nav [aria-current]").all():
            expect(link).to_be_in_viewport(ratio=0.9)
    console.check_accessibility()
    if width == min(NARROW):
        console.picture("narrow")


def test_a_number_is_copied_exactly(console: Console, client: LogClient, unique: str) -> None:
    client.topics.create(unique)
    write(client, unique, [b"x"] * 1234)
    console.visit(f"topics?match={unique}", "Topics")
    console.rows("Topics").get_by_role("button", name="1,234").click()
    expect(console.page.get_by_role("status").get_by_text("Copied 1234")).to_be_visible()
    assert console.page.evaluate("navigator.clipboard.readText()") == "1234"
