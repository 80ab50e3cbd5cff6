"""The first page: nodes, rates, what is wrong, and the way from there to everything else."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from goqueue.client import LogClient
from tests.e2e.conftest import write
from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import NewTopic
from tests.e2e.console.scenes import receive, reject
from tests.integration.waiting import eventually


def test_overview_shows_the_cluster_and_the_busiest_topics(
    console: Console, client: LogClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    write(client, topic, [b"{}"] * 1000)
    console.visit("", "Overview")
    expect(console.page).to_have_url(f"{console.node.http}/console/overview")
    expect(console.page.get_by_text("All partitions have a leader")).to_be_visible()
    row = console.rows("Busiest topics").filter(has_text=topic)
    expect(row.get_by_role("button", name="1,000", exact=True)).to_be_visible()
    row.get_by_role("link", name=topic).click()  # before its rate sinks
    console.heading(topic)
    console.page.go_back()
    console.heading("Overview")
    expect(console.page.get_by_text("All partitions have a leader")).to_be_visible()
    console.check_accessibility()
    console.picture("overview")


def test_overview_counts_what_waits(
    console: Console, api: Api, client: LogClient, new_topic: NewTopic
) -> None:
    topic, page = new_topic(), console.page
    write(client, topic, [b"x"] * 30)
    group = f"{topic}-workers"
    api.put(f"/v1/groups/{group}", {"kind": "queue", "settings": {"start": "earliest"}})
    reject(api, group, receive(api, group, topic, 2), "broken")
    api.post(f"/v1/topics/{topic}/publish", {"value": "later", "delay_ms": 3_600_000})
    eventually(
        lambda: any(
            one["topic"] == topic and one["messages"] == 2
            for one in api.get("/v1/deadletters")["topics"]
        ),
        because="the messages are dead letters",
    )
    console.visit("overview", "Overview")
    tiles = {
        name: page.locator(".tile").filter(has_text=name)
        for name in ("Lag of all groups", "Delayed messages", "Dead letters", "On disk")
    }
    # Figures of all groups are some seconds old.
    eventually(lambda: api.get("/v1/totals")["lag"] >= 28, because="the messages are waited for")
    totals = api.get("/v1/totals")
    expect(tiles["Lag of all groups"]).to_contain_text(f"{totals['lag']:,}")
    expect(tiles["Lag of all groups"]).to_contain_text(re.compile(r"in \d+ groups?"))
    pending = api.get("/v1/schedules/stats")["pending"]
    expect(tiles["Delayed messages"]).to_contain_text(f"{pending:,}")
    dead = sum(one["messages"] for one in api.get("/v1/deadletters")["topics"])
    expect(tiles["Dead letters"]).to_contain_text(f"{dead:,}")
    expect(tiles["On disk"]).to_contain_text(re.compile(r"[KMG]iB.*%\) free"))
    tiles["Lag of all groups"].get_by_role("link").click()
    expect(console.rows("Groups and queues").first).to_be_visible()


def test_plots_follow_the_rates(console: Console, client: LogClient, new_topic: NewTopic) -> None:
    """A point is added every ten seconds, by a request for nothing but what is new."""
    topic = new_topic()
    requests: list[str] = []
    console.page.on(
        "request", lambda one: requests.append(one.url) if "/v1/history" in one.url else None
    )
    console.visit("overview", "Overview")
    plot = console.page.get_by_role("img", name="Messages per second")
    expect(plot).to_be_visible()

    def is_shown() -> bool:
        write(client, topic, [b"x"] * 100)
        console.page.wait_for_timeout(100)  # lets the page go on
        has_continued = bool(re.search(r"from=\d{13}", requests[-1]))
        name = plot.get_attribute("aria-label") or ""
        return has_continued and bool(re.search(r"written [1-9]", name))

    eventually(is_shown, because="the plot shows what is written", within=60)
    assert "from=15m" in requests[0]
    expect(plot).to_have_accessible_name(re.compile(r"; 9[01] values from"))


@pytest.mark.parametrize(("span", "points"), [("1 hour", "18[01]"), ("6 hours", "27[0-2]")])
def test_a_long_span_stays_whole(console: Console, span: str, points: str) -> None:
    """The node joins rows to fewer values for a long span: what is new alone does not fit."""
    answered: list[str] = []
    console.page.on(
        "response", lambda one: answered.append(one.url) if "/v1/history" in one.url else None
    )
    console.visit("overview", "Overview")
    plot = console.page.get_by_role("img", name="Messages per second")
    expect(plot).to_be_visible()
    console.page.get_by_label("Time span").select_option(span)
    expect(plot).to_have_accessible_name(re.compile(rf"; {points} values from"))
    begun = len(answered)

    def has_polled_twice() -> bool:
        console.page.wait_for_timeout(100)  # lets the page go on
        return len(answered) >= begun + 3  # the first poll finds that values do not fit

    eventually(has_polled_twice, because="the plots are loaded again", within=60)
    expect(plot).to_have_accessible_name(re.compile(rf"; {points} values from"))
