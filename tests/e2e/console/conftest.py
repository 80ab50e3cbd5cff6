"""One Chromium and one node for the tests of the console of a process; a tab for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from goqueue.client import LogClient
from tests.e2e.console.browser import Api, Console, start_chromium
from tests.integration.process import Broker

OpenConsole = Callable[..., Console]
NewTopic = Callable[..., str]


# Playwright runs an event loop in this thread while it is open, and no test beside these could
# start one; so it ends with this package and not with the process.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium, shared by all tests of the console."""
    with sync_playwright() as playwright:
        browser = start_chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The shared node."""
    node = Broker(tmp_path_factory.mktemp("node"), {})
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture(scope="package")
def client(broker: Broker) -> Iterator[LogClient]:
    with LogClient(broker.bootstrap) as client:
        yield client


@pytest.fixture(scope="package")
def api(broker: Broker) -> Iterator[Api]:
    """The HTTP API of the shared node."""
    api = Api(broker)
    yield api
    api.close()


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node that nobody has used."""
    node = Broker(tmp_path_factory.mktemp("fresh"), {})
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture
def new_topic(client: LogClient, unique: str) -> NewTopic:
    """Create a topic on the shared node; those that pictures show have a name that reads well."""

    made: list[str] = []

    def create(partitions: int = 1, name: str | None = None) -> str:
        topic = name or f"{unique}-{len(made)}"
        made.append(topic)
        client.topics.create(topic, partition_count=partitions)
        return topic

    return create


@pytest.fixture
def open_console(browser: Browser) -> Iterator[OpenConsole]:
    """Open the console of a node in a new tab; its faults fail the test."""
    opened: list[Console] = []

    def open_one(node: Broker, **options: Any) -> Console:
        opened.append(Console(browser, node, **options))
        return opened[-1]

    yield open_one
    for console in opened:
        console.close()
    for console in opened:
        console.check_faults()


@pytest.fixture
def console(open_console: OpenConsole, broker: Broker) -> Console:
    """The console of the shared node."""
    return open_console(broker)
