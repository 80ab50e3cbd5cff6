"""The map in docs/ARCHITECTURE.md shows the rooms that exist, and no others."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def rooms_on_the_map(text: str, title: str = "The rooms") -> list[str]:
    """The first column of the table under a heading."""
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([a-z_]+(?:/|\.py))` \|", section, flags=re.MULTILINE)


def rooms_on_disk(source: Path) -> list[str]:
    folders = [f"{path.name}/" for path in source.iterdir() if any(path.glob("**/*.py"))]
    files = [path.name for path in source.glob("[!_]*.py")]
    return folders + files


def test_the_map_shows_the_rooms_that_exist() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert sorted(rooms_on_the_map(text)) == sorted(rooms_on_disk(ROOT / "src" / "goqueue"))


def test_the_map_of_the_broker_shows_the_rooms_that_exist() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    on_the_map = rooms_on_the_map(text, "Rooms of the broker")
    assert sorted(on_the_map) == sorted(rooms_on_disk(ROOT / "src" / "goqueue" / "broker"))


def test_a_room_that_is_missing_on_the_map_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "attic").mkdir()
    (tmp_path / "attic" / "old.py").touch()
    (tmp_path / "config.py").touch()
    (tmp_path / "__init__.py").touch()
    text = "# Map\n\n## The rooms\n\n| room | holds |\n|---|---|\n| `config.py` | it |\n\n## More\n"
    assert rooms_on_the_map(text) == ["config.py"]
    assert sorted(rooms_on_disk(tmp_path)) == ["attic/", "config.py"]
