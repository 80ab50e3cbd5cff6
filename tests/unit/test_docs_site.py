"""Every link of the documentation leads somewhere; every page is in the navigation."""

from __future__ import annotations

import os
import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

from tools.docs_site import DOCS, ROOT, configuration, for_the_site, llms_txt, pages_of

READ = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
FENCE = re.compile(r"^( *)(```+).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", READ, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    lost = [link for link in links_of(page.read_text(encoding="utf-8")) if not leads(link, page)]
    assert not lost, f"{page.relative_to(ROOT)} has links that lead nowhere"


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(pages_of(configuration()["nav"]))
    assert sorted(listed) == sorted(
        page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")
    )


def test_a_link_that_leaves_the_site_becomes_the_path_of_the_file() -> None:
    text = "[orders](../examples/orders.py#L3), [http](http.md), [a](#b), [x](https://example.com)"
    assert for_the_site(text, DOCS / "client.md") == (
        "`examples/orders.py`, [http](http.md), [a](#b), [x](https://example.com)"
    )
    assert for_the_site("[how](../bench/README.md)", DOCS / "a.md") == "how (`bench/README.md`)"
    assert for_the_site("```\n[a](../b)\n```\n", DOCS / "a.md") == "```\n[a](../b)\n```\n"


def test_llms_txt_names_every_page_and_what_it_is_about() -> None:
    lines = [line for line in llms_txt().splitlines() if line.startswith("- ")]
    assert len(lines) == len(list(pages_of(configuration()["nav"])))
    assert all(re.fullmatch(r"- \[.+\]\(\S+\.md\): .{10,}", line) for line in lines), lines


@pytest.mark.parametrize(
    ("link", "is_fine"),
    [
        ("https://example.com/gone", True),
        ("settings.md", True),
        ("settings.md#storage", True),
        ("settings.md#cellar", False),
        ("gone.md", False),
        ("../README.md#settings", True),
        ("#the-rooms", False),
    ],
)
def test_links_are_followed_to_the_heading(link: str, is_fine: bool) -> None:
    assert leads(link, DOCS / "index.md") is is_fine


def links_of(text: str) -> list[str]:
    """Targets of all links outside of code."""
    without_code = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    return LINK.findall(without_code)


def leads(link: str, page: Path) -> bool:
    """Whether a link leads to a file, and to a heading in it; other sites are not asked."""
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    target = Path(os.path.normpath(page.parent / path)) if path else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors_of(target)


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Anchors of the headings that are the same on GitHub and on the site."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = [heading.strip() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    by_hand = re.findall(r'<a id="([^"]+)">', text)
    return frozenset(
        {slug_of_github(heading) for heading in headings}
        & {slug_of_the_site(heading) for heading in headings}
    ) | {*by_hand}


def slug_of_github(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def slug_of_the_site(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    ascii_ = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_).strip().lower())


def test_every_decision_has_one_row_in_the_order_of_numbers() -> None:
    folder = ROOT / "docs" / "adr"
    rows = re.findall(
        r"^\| (\d+) \| \[(.+?)\]\((.+?)\) \|", (folder / "README.md").read_text(), re.M
    )
    assert [name for _, _, name in rows] == sorted(path.name for path in folder.glob("0*.md"))
    for number, _, name in rows:
        heading = (folder / name).read_text().splitlines()[0]
        assert int(name[:4]) == int(number)
        assert heading.startswith(f"# {number}. "), f"{name} begins with {heading!r}"
