"""Writes the notes of a release, from CHANGELOG.md: `python -m tools.packages.release_notes 0.2.0`.

The changelog is the one place where changes are described for users. Its lines are wrapped for
editors; release pages keep line breaks, so the notes have one line for each paragraph or item.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?\s*$")
_OWN_LINE = re.compile(r"^(#|[-*] |\d+\. |\||>|    )")


class NotReleased(Exception):
    """A version without a section that can be published."""


def notes(changelog: str, version: str) -> str:
    """The section of `version`, without its heading, as lines that are not wrapped."""
    sections = _sections(changelog)
    if version not in sections:
        known = ", ".join(sections) or "none"
        raise NotReleased(f"CHANGELOG.md has no section [{version}]; its sections: {known}.")
    text = _unwrapped(sections[version])
    if not text.strip():
        raise NotReleased(f"The section [{version}] of CHANGELOG.md is empty.")
    return text


def version_of_project(text: str) -> str:
    """The one place where the version is written, pyproject.toml."""
    return str(tomllib.loads(text)["project"]["version"])


def check_tag(tag: str, version: str) -> None:
    """Refuse a tag that names another version than the packages will have."""
    if tag != f"v{version}":
        raise NotReleased(
            f"The tag is {tag}, but the version in pyproject.toml is {version}: tag v{version}."
        )


def _sections(changelog: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in changelog.splitlines():
        heading = _HEADING.match(line)
        if heading is not None:
            lines = found.setdefault(heading["version"], [])
        elif line.startswith("## "):
            raise NotReleased(f"CHANGELOG.md has a heading without a version: {line}")
        elif lines is not None:
            lines.append(line)
    return found


def _unwrapped(lines: list[str]) -> str:
    joined: list[str] = []
    is_code = False
    for line in lines:
        is_fence = line.lstrip().startswith("```")
        continues = bool(
            joined and joined[-1] and line.strip() and not _OWN_LINE.match(line)
        ) and not joined[-1].startswith(("#", "|", "```"))
        if continues and not is_code and not is_fence:
            joined[-1] += " " + line.strip()
        else:
            joined.append(line.rstrip())
        is_code ^= is_fence
    return "\n".join(joined).strip() + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write the notes of a release.")
    parser.add_argument("version", nargs="?", help="default: that of pyproject.toml")
    parser.add_argument("--tag", help="fail unless this tag names the version of pyproject.toml")
    chosen = parser.parse_args(arguments)
    current = version_of_project((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    try:
        if chosen.tag is not None:
            check_tag(chosen.tag, current)
        changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
        print(notes(changelog, chosen.version or current), end="")
    except NotReleased as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
