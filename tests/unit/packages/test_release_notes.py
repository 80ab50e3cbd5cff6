from __future__ import annotations

import re

import pytest

from tools.packages.release_notes import REPOSITORY, NotReleased, check_tag, notes

CHANGELOG = """\
# Changelog

What is before the first version is not part of any notes.

## [Unreleased]

## [0.2.0] - 2026-11-20

### Added

- A feature whose description
  goes over two lines.
- Another one:

```sh
goqueue one
goqueue two
```

| a | b |
|---|---|
| 1 | 2 |

A paragraph
of two lines.

## [0.1.0] - 2026-01-02

- The first version.
"""


def test_the_notes_are_the_section_of_the_version_without_line_wraps() -> None:
    assert notes(CHANGELOG, "0.2.0") == (
        "### Added\n\n- A feature whose description goes over two lines.\n- Another one:\n\n"
        "```sh\ngoqueue one\ngoqueue two\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "A paragraph of two lines.\n"
    )
    assert notes(CHANGELOG, "0.1.0") == "- The first version.\n"


@pytest.mark.parametrize(
    ("version", "complaint"),
    [("0.3.0", r"no section \[0.3.0\]; its sections: Unreleased"), ("Unreleased", "is empty")],
)
def test_what_has_no_section_is_not_released(version: str, complaint: str) -> None:
    with pytest.raises(NotReleased, match=complaint):
        notes(CHANGELOG, version)


def test_a_tag_has_to_name_the_version_of_the_packages() -> None:
    check_tag("v0.2.0", "0.2.0")
    with pytest.raises(NotReleased, match=r"tag v0.2.0"):
        check_tag("v0.3.0", "0.2.0")


def test_our_own_changelog_can_be_read() -> None:
    text = notes((REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), "Unreleased")
    assert text.startswith("### ")
    assert "\n  " not in text.split("```")[0]


def test_a_subject_has_one_heading_in_each_part_and_no_change_is_named_twice() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    for part in re.split(r"^##+ .*\n", text, flags=re.MULTILINE)[1:]:
        blocks = part.strip().split("\n\n")
        subjects, lists = blocks[::2], blocks[1::2]
        assert len(subjects) == len(set(subjects))
        assert not [subject for subject in subjects if subject.startswith("- ")]
        for changes in lists:
            assert re.fullmatch(r"(- .+\n(  .+\n)*)+", changes + "\n"), changes
        begins = re.findall(r"^- (.{60})", part, flags=re.MULTILINE)
        assert len(begins) == len(set(begins))
