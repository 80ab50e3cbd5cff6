"""Dialogs, the palette, notes and tables, for people who type faster than a page is painted."""

from __future__ import annotations

import re
from urllib.parse import quote

from playwright.sync_api import Locator, expect

from goqueue.client import LogClient
from tests.e2e.conftest import write
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import NewTopic, OpenConsole
from tests.integration.process import Broker


def selected(palette: Locator) -> Locator:
    return palette.get_by_role("option", selected=True)


def test_enter_in_the_palette_means_what_was_typed(
    console: Console, client: LogClient, unique: str
) -> None:
    """An older text found another topic, and topics that only contain the name come before it."""
    names = [f"{unique}-a", f"{unique}-b", *(f"{one}-{unique}-b" for one in "acdefgh")]
    for name in names:
        client.topics.create(name)
    console.visit("overview", "Overview")
    page = console.page
    page.keyboard.press("Control+k")
    page.keyboard.type(f"{unique}-b")
    page.keyboard.press("Enter")
    console.heading(f"{unique}-b")
    page.keyboard.press("Control+k")
    page.keyboard.type(unique)
    palette = console.dialog("Go to")
    expect(selected(palette)).to_contain_text(f"{unique}-a")
    page.keyboard.type("-b")
    page.keyboard.press("Enter")
    console.heading(f"{unique}-b")
    expect(palette).to_have_count(0)


def test_keys_that_follow_ctrl_k_are_typed(console: Console) -> None:
    """They are shortcuts of the page otherwise: `g t` goes to the topics, `T` changes the theme."""
    page = console.page
    console.visit("overview", "Overview")
    for _ in range(5):
        page.keyboard.press("Control+k")
        page.keyboard.type("gtT?")
        expect(console.dialog("Go to").get_by_role("combobox")).to_have_value("gtT?")
        page.keyboard.press("Escape")
    console.heading("Overview")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_palette_scrolls_to_what_is_chosen(
    open_console: OpenConsole, broker: Broker, client: LogClient, unique: str
) -> None:
    for number in range(6):
        client.topics.create(f"{unique}-{number}")
    console = open_console(broker, viewport={"width": 1000, "height": 400})
    console.visit("overview", "Overview")
    page = console.page
    page.keyboard.press("Control+k")
    palette = console.dialog("Go to")
    options = palette.get_by_role("option")
    expect(options.nth(15)).to_be_attached()
    page.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    expect(options.last).to_be_in_viewport(ratio=0.9)
    page.keyboard.press("ArrowDown")
    expect(options.first).to_be_in_viewport(ratio=0.9)


def test_notes_are_in_front_of_an_open_dialog(
    console: Console, client: LogClient, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    write(client, topic, [b"first"])
    console.visit(f"topics/{topic}?open=0:0", topic)
    drawer = console.dialog(re.compile("offset 0"))
    for _ in range(3):
        drawer.get_by_role("button", name="Copy", exact=True).click()
    note = drawer.get_by_role("status").get_by_text("Copied first")
    expect(note).to_have_count(1)
    expect(note).to_be_in_viewport(ratio=1)
    console.check_accessibility()
    drawer.get_by_role("status").get_by_role("button", name="Dismiss").click()
    expect(note).to_have_count(0)
    drawer.get_by_role("button", name="Copy", exact=True).click()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(page.get_by_role("status").get_by_text("Copied first")).to_be_visible()


def test_a_name_that_cannot_be_typed_is_confirmed_as_it_is_shown(
    console: Console, api: Api, unique: str
) -> None:
    name = f"{unique}-\u202efdp"
    api.put(f"/v1/groups/{quote(name, safe='')}", {"kind": "queue"})
    console.visit(f"groups/{quote(name, safe='')}/settings")
    console.page.get_by_role("button", name="Delete").first.click()
    dialog = console.dialog("Delete group")
    action = dialog.get_by_role("button", name="Delete group")
    dialog.get_by_label(f"Type {unique}-U+202Efdp to confirm").fill(f"{unique}-fdp")
    expect(action).to_be_disabled()
    dialog.get_by_label(f"Type {unique}-U+202Efdp to confirm").fill(f"{unique}-U+202Efdp")
    action.click()
    expect(dialog).to_have_count(0)
    assert api.status(f"/v1/groups/{quote(name, safe='')}") == 404


def test_a_number_is_copied_by_keyboard(console: Console, client: LogClient, unique: str) -> None:
    client.topics.create(unique, partition_count=3)
    write(client, unique, [b"x"] * 1234)
    page = console.page
    console.visit(f"topics?match={unique}", "Topics")
    expect(console.rows("Topics")).to_contain_text("1,234")
    console.table("Topics").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="1,234", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").get_by_text("Copied 1234")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("link", name=unique)).to_be_focused()
    page.keyboard.press("Enter")
    console.heading(unique)
    page.get_by_role("button", name="1,234", exact=True).focus()  # of a tile: Tab leads there
    assert page.evaluate("document.activeElement.tabIndex") == 0


def test_typing_does_not_undo_another_filter(console: Console, new_topic: NewTopic) -> None:
    topic, page = new_topic(), console.page
    console.visit("topics", "Topics")
    page.get_by_role("searchbox", name="Filter topics").fill(topic)
    page.get_by_label("Which topics").select_option("With internal topics")
    expect(page).to_have_url(re.compile(f"(?=.*match={topic})(?=.*internal=true)"))
    expect(console.rows("Topics")).to_have_count(1)


def test_the_live_tail_is_not_read_aloud_message_by_message(
    console: Console, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    console.visit(f"topics/{topic}?live=1", topic)
    expect(page.get_by_text("Live · 0 messages shown")).to_have_attribute("aria-live", "off")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped · 0 messages")).to_have_attribute("aria-live", "polite")


def test_a_slash_goes_to_the_filter_of_messages(
    console: Console, client: LogClient, new_topic: NewTopic
) -> None:
    """What was typed after it, such as `g t`, was taken for shortcuts."""
    topic, page = new_topic(), console.page
    write(client, topic, [b"going to", b"staying"])
    console.visit(f"topics/{topic}", topic)
    expect(console.rows(f"Messages of {topic}")).to_have_count(2)
    page.keyboard.press("/")
    page.keyboard.type("going to")
    page.keyboard.press("Enter")
    expect(console.rows(f"Messages of {topic}")).to_have_count(1)
    console.heading(topic)


def test_addresses_of_no_page_say_so(console: Console, new_topic: NewTopic) -> None:
    topic, page = new_topic(), console.page
    for path in (f"topics/{topic}/nosuch", "access/rules", "cluster/x", "groups/100%", "nosuch"):
        console.visit(path)
        expect(page.get_by_text("There is no such page")).to_be_visible()
