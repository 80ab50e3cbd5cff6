"""Files of the console: what browsers get, what they may keep, and what nobody gets."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from goqueue.model.session import ListenerRules
from goqueue.wire.carrier.application import Application
from goqueue.wire.http.console import pages
from goqueue.wire.http.console.files import FILE_BYTES_MAX, BuiltFiles
from goqueue.wire.http.console.pages import ConsoleDialect
from tests.simulation.world import World
from tests.unit.wire.http.client import Answer, Client

INDEX = b"<!doctype html><title>GoQueue</title>"
SCRIPT = b"export const one = 1;" * 100
PAGE = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_bytes(INDEX)
    (static / "app-K7SKUVFQ.js").write_bytes(SCRIPT)
    (static / "app-K7SKUVFQ.js.gz").write_bytes(gzip.compress(SCRIPT))
    (static / "filter-worker-2ZV5BQ4A.js").write_bytes(b"onmessage = null")
    (static / "icons").mkdir()
    (static / "icons" / "queue.svg").write_bytes(b"<svg/>")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    monkeypatch.setattr(pages, "_files", BuiltFiles(static))
    return static


@pytest.fixture
def client(folder: Path) -> Client:
    client = Client(World())
    client.application = Application(client.front, mounts={"console": ConsoleDialect()})
    return client


def get(client: Client, path: str, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.send("GET", path, headers=named)


def test_every_page_of_the_console_is_its_start_page(client: Client) -> None:
    for path in ("/", "/console", "/console/", "/console/topics/orders?sort=lag", "/console/a/b.c"):
        answer = get(client, path, **PAGE)
        assert (answer.status, answer.body) == (200, INDEX)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"


def test_programs_still_get_the_links_at_the_start_page(client: Client) -> None:
    assert get(client, "/").json["links"]["documentation"] == "/docs"
    assert get(client, "/", accept="*/*").json["name"] == "GoQueue"


def test_a_program_is_told_that_a_file_does_not_exist(client: Client) -> None:
    answer = get(client, "/console/app-OLDOLDOL.js", accept="*/*")
    assert answer.status == 404
    assert answer.json["code"] == "unknown_route"


def test_files_named_by_their_content_are_kept_for_ever(client: Client) -> None:
    answer = get(client, "/console/app-K7SKUVFQ.js")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.body == SCRIPT
    assert get(client, "/console/icons/queue.svg").headers["cache-control"] == "no-cache"


def test_compressed_files_are_sent_to_browsers_that_take_them(client: Client) -> None:
    answer = get(client, "/console/app-K7SKUVFQ.js", accept_encoding="gzip, br")
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body) == SCRIPT
    assert "accept-encoding" in answer.headers["vary"]
    plain = get(client, "/console/icons/queue.svg", accept_encoding="gzip")
    assert "content-encoding" not in plain.headers


def test_what_a_browser_has_is_not_sent_again(client: Client) -> None:
    first = get(client, "/console/icons/queue.svg")
    again = get(client, "/console/icons/queue.svg", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert "content-length" not in again.headers


def test_a_changed_file_is_read_again(client: Client, folder: Path) -> None:
    before = get(client, "/console/icons/queue.svg")
    (folder / "icons" / "queue.svg").write_bytes(b"<svg>new</svg>")
    after = get(client, "/console/icons/queue.svg", if_none_match=before.headers["etag"])
    assert (after.status, after.body) == (200, b"<svg>new</svg>")


def test_head_has_the_length_and_no_body(client: Client) -> None:
    wire = client.wire()
    wire.feed(b"HEAD /console/app-K7SKUVFQ.js HTTP/1.1\r\nhost: node\r\n\r\n")
    head, end, body = bytes(wire.sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"content-length: %d" % len(SCRIPT) in head
    assert (end, body) == (b"\r\n\r\n", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_in_the_console_can_be_changed(client: Client, method: str) -> None:
    answer = client.refused(method, "/console/index.html", {})
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path",
    [
        "/console/../secret.txt",
        "/console/icons/../../secret.txt",
        "/console/%2e%2e/secret.txt",
        "/console/..%2fsecret.txt",
        "/console//secret.txt",
        "/console/.hidden.txt",
        "/console/icons",
        "/console/app-K7SKUVFQ.js.gz",
        "/console/icons/queue.svg%00.txt",
    ],
)
def test_no_path_leads_out_of_the_folder(client: Client, path: str) -> None:
    assert get(client, path).status == 404


def test_files_that_cannot_be_of_the_console_are_not_sent(client: Client, folder: Path) -> None:
    with (folder / "huge.js").open("wb") as huge:
        huge.truncate(FILE_BYTES_MAX + 1)
    assert get(client, "/console/huge.js").status == 404


def test_pages_may_load_nothing_foreign_and_stand_in_no_frame(client: Client) -> None:
    for path in ("/", "/console/topics"):
        policy = get(client, path, **PAGE).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_only_the_worker_of_filters_may_run_what_users_write(client: Client) -> None:
    worker = get(client, "/console/filter-worker-2ZV5BQ4A.js")
    assert worker.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'unsafe-eval'"
    )
    app = get(client, "/console/app-K7SKUVFQ.js")
    assert "unsafe" not in app.headers["content-security-policy"]


def test_the_console_itself_needs_no_credentials_and_data_does(client: Client) -> None:
    client.rules = ListenerRules("http", must_authenticate=True)
    for path in ("/", "/console", "/console/topics"):
        assert get(client, path, **PAGE).body == INDEX
    assert get(client, "/console/app-K7SKUVFQ.js").status == 200
    assert get(client, "/").status == 401
    assert get(client, "/v1/topics", **PAGE).status == 401


def test_a_browser_asks_for_no_password_on_behalf_of_a_script(client: Client) -> None:
    client.rules = ListenerRules("http", must_authenticate=True)
    by_script = get(client, "/v1/topics", sec_fetch_mode="cors", sec_fetch_site="same-origin")
    assert by_script.headers["www-authenticate"] == 'Bearer realm="GoQueue"'
    opened = client.wire()
    opened.feed(b"GET /v1/topics HTTP/1.1\r\nhost: node\r\nsec-fetch-mode: navigate\r\n\r\n")
    assert b"Basic realm" in bytes(opened.sent)


def test_without_built_files_the_reason_is_told(client: Client, folder: Path) -> None:
    (folder / "index.html").unlink()
    for path in ("/", "/console/topics"):
        answer = get(client, path, **PAGE)
        assert answer.status == 404
        assert b"make console" in answer.body
