"""The quickstart and the tutorials run as they stand, and print what they show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import LANGUAGES, ROOT, Reader, blocks, check_starts, is_like

from .process import Broker

DOCS = ROOT / "docs"
ELSEWHERE = ("09-spark.md", "10-cluster.md")  # they need Spark, and three nodes
PAGES = [
    *sorted(DOCS.glob("how-to/*.md")),
    DOCS / "start" / "quickstart.md",
    *(page for page in sorted(DOCS.glob("tutorials/*.md")) if page.name not in ELSEWHERE),
]

pytestmark = pytest.mark.single_node("follows pages that start one")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node for all pages: each has topics and groups of its own."""
    node = Broker(tmp_path_factory.mktemp("tutorials"), {})
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture
def reader(node: Broker, tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(
        tmp_path,
        {
            "127.0.0.1:9324": node.sqs.removeprefix("http://"),
            "127.0.0.1:8080": node.http.removeprefix("http://"),
            "127.0.0.1:9092": node.bootstrap,
        },
    )
    yield reader
    reader.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_prints_what_it_shows(page: Path, reader: Reader) -> None:
    reader.follow(page)


@pytest.mark.parametrize(
    "page", [*PAGES, *(DOCS / "tutorials" / name for name in ELSEWHERE)], ids=lambda page: page.stem
)
def test_what_a_page_starts_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {block.language for block in blocks(text)} <= LANGUAGES
    check_starts(text)


@pytest.mark.parametrize(
    ("expected", "printed", "is_so"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a …\n", "a 12 s\n", True),
        ("a …\n", "a 12 s\nb\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nb\nc\n", False),
        ("", "a\n", False),
    ],
)
def test_output_is_compared_line_by_line(expected: str, printed: str, is_so: bool) -> None:
    assert is_like(printed, expected) is is_so


def test_a_command_that_fails_fails_the_page(reader: Reader, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ true\n$ false\n```\n")
    with pytest.raises(AssertionError, match="false"):
        reader.follow(page)
