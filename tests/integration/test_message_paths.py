"""How many files a message visits, as docs/ARCHITECTURE.md says; more need a reason."""

from __future__ import annotations

from pathlib import Path

from tools.message_paths import counts, single_node

PAGE = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"
FILES = {"produce, plain": 13, "produce, idempotent": 21, "receive": 25, "ack": 28}


def test_a_message_visits_as_many_files_as_the_map_says(tmp_path: Path) -> None:
    found = {name: counts(visited) for name, visited in single_node(tmp_path).items()}
    files = {name: count for name, (count, _) in found.items()}
    assert files == FILES, "update docs/ARCHITECTURE.md; more files need a reason"
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    produce = "**Files: 13** (plain batch), **21** (idempotent producer), and **6** and **5**"
    queues = "**Files: 25** (receive) and **28** (ack)"
    assert produce in text
    assert queues in text
    assert [observers for _, observers in found.values()] == [6, 5, 1, 6]
