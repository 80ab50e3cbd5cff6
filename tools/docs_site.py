"""Builds the documentation site from docs/ and mkdocs.yml, without network access.

Pages link to files of the repository that are not part of the site, such as programs in examples/.
On the site, such a link becomes the path of the file. Next to each page is its Markdown source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIGURATION = ROOT / "mkdocs.yml"
STAGE = ROOT / "build" / "docs"
SITE = STAGE / "site"

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)


def configuration() -> dict[str, Any]:
    """What mkdocs.yml says, with every folder of the navigation as the pages in it."""
    found: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    found["nav"] = _expanded(found["nav"])
    return found


def _expanded(entries: list[Any]) -> list[Any]:
    expanded: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            [(title, inner)] = entry.items()
            expanded.append({title: _expanded(inner) if isinstance(inner, list) else inner})
        elif entry.endswith("/"):
            pages = sorted(
                DOCS.glob(f"{entry}*.md"), key=lambda page: (page.stem != "README", page.stem)
            )
            expanded += [page.relative_to(DOCS).as_posix() for page in pages]
        else:
            expanded.append(entry)
    return expanded


def pages_of(entries: list[Any]) -> Iterator[str]:
    """The pages of a navigation in its order, by their path below docs/."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from [inner] if isinstance(inner, str) else pages_of(inner)


def for_the_site(text: str, page: Path) -> str:
    """The source of a page, with the path of the file instead of a link that leaves docs/."""

    def replaced(found: re.Match[str]) -> str:
        title, target = found[1], found[2].partition("#")[0]
        if not target or ":" in target:
            return found[0]
        path = Path(os.path.normpath(page.parent / target))
        if path.is_relative_to(DOCS):
            return found[0]
        name = path.relative_to(ROOT).as_posix()
        return f"`{name}`" if title.strip("`") in name else f"{title} (`{name}`)"

    pieces = _FENCE.split(text)
    return "".join(
        piece if piece.startswith("```") else _LINK.sub(replaced, piece) for piece in pieces
    )


def llms_txt() -> str:
    """An index of all pages for programs that read documentation: llms.txt of the site."""
    lines = [f"# {configuration()['site_name']}", "", f"> {configuration()['site_description']}"]
    for section in configuration()["nav"]:
        [(title, entries)] = section.items()
        lines += ["", f"## {title}", ""]
        lines += [f"- [{_title(page)}]({page}): {_summary(page)}" for page in pages_of(entries)]
    return "\n".join(lines) + "\n"


def _title(page: str) -> str:
    found = re.search(r"^# (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found is not None else page


def _summary(page: str) -> str:
    """The first sentence after the title, without its markup."""
    text = _FENCE.sub("", (DOCS / page).read_text(encoding="utf-8"))
    paragraphs = [one.strip() for one in text.split("\n\n")]
    is_prose = re.compile(r"(?!Status:)[^#|<!*>-]").match
    prose = next(filter(is_prose, paragraphs), "")
    plain = _LINK.sub(r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.?])\s", plain, maxsplit=1)[0]


def main() -> int:
    """Build the site; the status is that of the generator."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(DOCS, STAGE / "docs")
    settings = configuration() | {"site_dir": SITE.name}
    (STAGE / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        text = for_the_site(page.read_text(encoding="utf-8"), page)
        (STAGE / "docs" / page.relative_to(DOCS)).write_text(text, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    status = subprocess.run([*command, "-f", STAGE / "mkdocs.yml"], check=False).returncode
    if status == 0:
        for page in (STAGE / "docs").rglob("*.md"):
            shutil.copy(page, SITE / page.relative_to(STAGE / "docs"))
        (SITE / "llms.txt").write_text(llms_txt(), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
