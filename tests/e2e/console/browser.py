"""A tab of Chromium that shows the console of a node, and records what goes wrong in it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Playwright,
    Request,
    Response,
    expect,
)

from tests.e2e.console.pictures import write_small
from tests.integration.process import Broker

PICTURES = Path(__file__).parents[3] / "docs" / "console"
# Set by `make console-pictures`.
WRITES_PICTURES = os.environ.get("GOQUEUE_CONSOLE_PICTURES") == "1"
THEMES = ("light", "dark")
WINDOW = {"width": 1280, "height": 800}
# Only a wrong console takes that long, also on a busy machine.
SHOWN_MS_MAX = 45_000
REFUSED_FINDINGS = ("serious", "critical")
# `--no-sandbox` because containers have no namespaces for it, and root may not use it.
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"]

expect.set_options(timeout=SHOWN_MS_MAX)


def start_chromium(playwright: Playwright, *flags: str) -> Browser:
    """Start Debian's Chromium; without it the tests fail, as they do without kcat."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None, "the tests of the console need Chromium: apt-get install chromium"
    return playwright.chromium.launch(executable_path=program, args=[*CHROMIUM_FLAGS, *flags])


class Console:
    """The console of a node in a tab of its own, with storage of its own."""

    def __init__(self, browser: Browser, node: Broker, **options: Any) -> None:
        options = {"viewport": WINDOW, "color_scheme": "light", "locale": "en-US"} | options
        self.node = node
        self._browser = browser
        self.context: BrowserContext = browser.new_context(base_url=node.http, **options)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.context.set_default_timeout(SHOWN_MS_MAX)
        self.faults: list[str] = []
        self._allowed: list[re.Pattern[str]] = []
        self._origins = [node.http]
        self.context.on("console", self._on_console)
        self.context.on("weberror", lambda error: self._note(f"uncaught: {error.error}"))
        self.context.on("request", self._on_request)
        self.context.on("requestfailed", self._on_failed_request)
        self.context.on("response", self._on_response)
        self.page: Page = self.context.new_page()

    def visit(self, path: str, heading: str | None = None) -> None:
        """Open a page of the console, and wait for its heading if it is given."""
        self.page.goto(f"/console/{path}")
        if heading is not None:
            self.heading(heading)

    def heading(self, text: str) -> None:
        """Wait until the page has this heading."""
        expect(self.page.get_by_role("heading", level=1)).to_have_text(text)

    def table(self, label: str) -> Locator:
        """Return a table by its label."""
        return self.page.get_by_role("region", name=label, exact=True)

    def rows(self, label: str) -> Locator:
        """Return the rows of a table, without its head."""
        return self.table(label).locator("tbody tr")

    def go_to_next_page(self, label: str, *, first: int, second: int) -> Locator:
        """Go to the second page of a list that has two; return the rows of the list."""
        rows = self.rows(label)
        expect(rows).to_have_count(first)
        expect(self.page.get_by_text(f"{first} of {first + second}")).to_be_visible()
        self.page.get_by_role("link", name="Next").click()
        expect(rows).to_have_count(second)
        return rows

    def open_dialog(self, title: str) -> Locator:
        """Click on the button that has the same name as its dialog."""
        self.page.get_by_role("button", name=title).click()
        return self.dialog(title)

    def dialog(self, title: str | re.Pattern[str]) -> Locator:
        """Return an open dialog by its title."""
        return self.page.get_by_role("dialog", name=title)

    def choose_theme(self, theme: str) -> None:
        """Show the page as the system's preference for light or dark asks."""
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        expect(self.page.locator("html")).to_have_attribute("data-theme", theme)

    def check_accessibility(self) -> None:
        """Fail on serious findings of axe in the page as it is now, in both themes."""
        for theme in THEMES:
            self.choose_theme(theme)
            found = Axe().run(self.page, options={"resultTypes": ["violations"]}).response
            serious = [one for one in found["violations"] if one["impact"] in REFUSED_FINDINGS]
            assert not serious, "\n".join(_finding(one, theme) for one in serious)
        self.choose_theme("light")

    def picture(self, name: str) -> None:
        """Write docs/console/NAME-light.png and -dark.png, if `make console-pictures` runs this."""
        if not WRITES_PICTURES:
            return
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.mouse.move(0, 0)
        for theme in THEMES:
            self.choose_theme(theme)
            png = self.page.screenshot(animations="disabled")
            write_small(self._browser, png, PICTURES / f"{name}-{theme}.png")
        self.choose_theme("light")

    def allow_faults(self, pattern: str) -> None:
        """Accept faults that a test causes on purpose."""
        self._allowed.append(re.compile(pattern))

    def check_faults(self) -> None:
        """Fail if anything went wrong in the tab that no test allowed."""
        unexpected = [
            fault for fault in self.faults if not any(one.search(fault) for one in self._allowed)
        ]
        assert not unexpected, "the browser reports:\n" + "\n".join(unexpected)

    def close(self) -> None:
        self.context.close()

    def _note(self, fault: str) -> None:
        self.faults.append(fault)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(f"console {message.type}: {message.text} at {message.location}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((*self._origins, "data:", "blob:")):
            self._note(f"foreign request: {request.url}")

    def _on_failed_request(self, request: Request) -> None:
        # A page that is left ends its own requests.
        if request.failure != "net::ERR_ABORTED":
            self._note(f"failed request: {request.method} {request.url}: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self._note(f"status {response.status}: {response.request.method} {response.url}")


class Api:
    """Requests to /v1 by which tests prepare a node and check what the console has done."""

    def __init__(self, node: Broker, **headers: str) -> None:
        self._client = httpx.Client(base_url=node.http, headers=headers, timeout=60)

    def get(self, path: str, **query: Any) -> Any:
        # Even no parameters would take the place of those that the path has.
        return self._answer(self._client.get(path, params=query or None))

    def post(self, path: str, body: Any = None) -> Any:
        return self._answer(self._client.post(path, json={} if body is None else body))

    def patch(self, path: str, body: Any) -> Any:
        return self._answer(self._client.patch(path, json=body))

    def put(self, path: str, body: Any) -> Any:
        return self._answer(self._client.put(path, json=body))

    def delete(self, path: str) -> Any:
        return self._answer(self._client.delete(path))

    def status(self, path: str) -> int:
        """Return the status of a GET, whatever it is."""
        return self._client.get(path).status_code

    def close(self) -> None:
        self._client.close()

    @staticmethod
    def _answer(response: httpx.Response) -> Any:
        assert response.is_success, f"{response.request.method} {response.url}: {response.text}"
        return response.json() if response.content else None


def _finding(finding: dict[str, Any], theme: str) -> str:
    nodes = "\n".join(
        f"    {node['html'][:300]}\n    {node['failureSummary']}" for node in finding["nodes"][:5]
    )
    return f"{finding['impact']} in the {theme} theme: {finding['id']}: {finding['help']}\n{nodes}"
