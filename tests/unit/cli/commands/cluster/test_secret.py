"""`goqueue cluster secret`: it needs no broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.test_main import run


def test_a_secret_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "cluster", "secret") == 0
    assert len(capsys.readouterr().out.strip()) == 43


def test_a_secret_is_written_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    assert run(monkeypatch, "cluster", "secret", "--file", str(path)) == 0
    first = capsys.readouterr().out
    assert "new secret" in first
    assert path.read_text().strip() not in first
    before = path.read_text()
    assert run(monkeypatch, "cluster", "secret", "--file", str(path)) == 0
    assert "is unchanged" in capsys.readouterr().out
    assert path.read_text() == before
    assert run(monkeypatch, "cluster", "secret", "--file", str(tmp_path / "no" / "secret")) != 0
    assert "cannot be written" in capsys.readouterr().err
