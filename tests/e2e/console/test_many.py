"""Lists with many topics and groups: the console stays quick, and so does the node.

`make console-many-topics` has 10,000 topics and 100,000 groups, and prints what takes how long.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as NewKafkaTopic
from playwright.sync_api import expect

from goqueue.client import LogClient
from tests.e2e.conftest import write
from tests.e2e.console.browser import Api
from tests.e2e.console.conftest import OpenConsole
from tests.integration.process import Broker

TOPICS = int(os.environ.get("GOQUEUE_CONSOLE_TOPICS", "3000"))
GROUPS = int(os.environ.get("GOQUEUE_CONSOLE_GROUPS", "3000"))
TOPICS_PER_REQUEST = 500
THREADS = 4
QUICK_SECONDS_MAX = 30  # all steps together, on a busy machine


def test_lists_stay_quick_with_many_topics_and_groups(
    open_console: OpenConsole, fresh: Broker
) -> None:
    create_topics(fresh)
    create_groups(fresh)
    console = open_console(fresh)
    page, rows, groups = console.page, console.rows("Topics"), console.rows("Groups and queues")
    begin = time.monotonic()
    with timed("topics by name"):
        console.visit("topics", "Topics")
        expect(page.get_by_text(f"50 of {TOPICS:,}")).to_be_visible()
    with timed("topics by messages"):
        page.get_by_role("button", name="Messages", exact=True).click()
        expect(rows.first).to_contain_text("topic-01234")
    with timed("topics that contain a text"):
        page.get_by_role("searchbox", name="Filter topics").fill("topic-0123")
        expect(rows).to_have_count(10)
        expect(rows.first).to_contain_text("topic-01234")
    with timed("a topic in the palette"):
        page.keyboard.press("Control+k")
        page.keyboard.type(f"topic-{TOPICS - 1:05}")
        expect(page.get_by_role("option", name=f"topic-{TOPICS - 1:05}")).to_be_visible()
        page.keyboard.press("Escape")
    with timed("groups by name"):
        console.visit("groups", "Groups and queues")
        expect(page.get_by_text(f"50 of {GROUPS:,}")).to_be_visible()
        expect(groups.first).to_contain_text("group-000000")
    with timed("groups by lag"):
        console.visit("groups?sort=lag&order=desc", "Groups and queues")
        expect(groups.first).to_contain_text("50")
    with timed("groups that contain a text"):
        page.get_by_role("searchbox", name="Filter groups and queues").fill("group-00042")
        expect(groups).to_have_count(10)
    with timed("the overview with all its figures"):
        console.visit("overview", "Overview")
        lag = page.locator(".tile").filter(has_text="Lag of all groups")
        # Of how many depends on how old the figures are: they are reused for as long as they cost.
        expect(lag).to_contain_text(re.compile(r"in [1-9][0-9,]* groups"))
        expect(console.rows("Groups with the most lag")).to_have_count(6)
    assert time.monotonic() - begin < QUICK_SECONDS_MAX
    api = Api(fresh)
    for what, path in (
        ("totals, again", "/v1/totals"),
        ("groups by lag, again", "/v1/groups?sort=lag&order=desc&limit=50&stats=true"),
        ("topics by lag", "/v1/topics?sort=lag&order=desc&limit=50&stats=true"),
        ("a page of groups with figures", "/v1/groups?limit=50&stats=true"),
        ("the version, which waits for nothing", "/version"),
    ):
        with timed(what):
            api.get(path)
    api.close()


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Write how long something takes; `make console-many-topics` shows it."""
    begin = time.monotonic()
    yield
    sys.stdout.write(f"{what}: {(time.monotonic() - begin) * 1000:.0f} ms\n")


def create_topics(node: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for first in range(0, TOPICS, TOPICS_PER_REQUEST):
        numbers = range(first, min(first + TOPICS_PER_REQUEST, TOPICS))
        created = admin.create_topics([NewKafkaTopic(f"topic-{one:05}", 1, 1) for one in numbers])
        for topic in created.values():
            topic.result(60)
    with LogClient(node.bootstrap) as client:
        write(client, "topic-01234", [b"x"] * 50)


def create_groups(node: Broker) -> None:
    """Let each group commit that it has read nothing of the topic with messages."""
    offsets = [{"topic": "topic-01234", "partition": 0, "offset": 0}]
    body = json.dumps({"offsets": offsets}).encode()
    place = urlsplit(node.http)

    def create(numbers: range) -> None:
        connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
        for number in numbers:
            path = f"/v1/groups/group-{number:06}/commit"
            connection.request("POST", path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            assert json.loads(answer.read())["failed"] == 0
        connection.close()

    with ThreadPoolExecutor(THREADS) as threads:
        for done in [threads.submit(create, range(one, GROUPS, THREADS)) for one in range(THREADS)]:
            done.result()
