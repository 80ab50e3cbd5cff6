"""The guide to the console: its pictures exist and are small, and its keys are the console's."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
GUIDE = (DOCS / "console.md").read_text(encoding="utf-8")
SOURCES = ROOT / "console" / "src"
PICTURE_BYTES_MAX = 100_000


def test_pictures_of_the_guide_exist() -> None:
    named = re.findall(r"!\[[^]]*\]\((console/[^)]*)\)", GUIDE)
    assert len(named) >= 5
    for name in named:
        assert (DOCS / name).is_file(), name


def test_each_picture_is_small_and_there_in_both_themes() -> None:
    pictures = sorted(file.name for file in (DOCS / "console").iterdir())
    for name in pictures:
        other = name.replace("-light.", "-dark.")
        assert other in pictures
        assert name.replace("-dark.", "-light.") in pictures
        assert (DOCS / "console" / name).stat().st_size <= PICTURE_BYTES_MAX, name


def test_keys_of_pages_are_those_of_the_console() -> None:
    navigation = (SOURCES / "parts" / "navigation.ts").read_text(encoding="utf-8")
    keys = re.findall(r'^  \["[a-z-]+", "[a-z]+", "([a-z])"', navigation, flags=re.MULTILINE)
    assert len(keys) >= 10
    assert f"g, then {' '.join(keys)} |" in GUIDE
