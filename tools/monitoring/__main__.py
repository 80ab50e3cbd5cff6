"""Writes `deploy/prometheus`, the boards in `deploy/grafana`, and the list of all alerts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from tools.monitoring.boards import BOARDS, model_text
from tools.monitoring.rules import RULES, RUNBOOKS, case_texts, rules_text, runbooks_text

ROOT = Path(__file__).resolve().parents[2]


def files(runbooks: str = RUNBOOKS) -> Mapping[Path, str]:
    """All generated files, with their texts."""
    prometheus = ROOT / "deploy" / "prometheus"
    boards = ROOT / "deploy" / "grafana" / "dashboards"
    return {
        prometheus / RULES: rules_text(runbooks),
        **{prometheus / "tests" / name: text for name, text in case_texts(runbooks).items()},
        ROOT / "docs" / "runbooks" / "README.md": runbooks_text(),
        **{boards / f"{board.name}.json": model_text(board) for board in BOARDS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.monitoring", description=__doc__)
    parser.add_argument("--runbooks", default=RUNBOOKS, help="where the runbook pages are served")
    for file, text in files(parser.parse_args().runbooks).items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
