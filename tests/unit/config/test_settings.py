"""The table of settings: defaults, names, and the page of the manual that shows them."""

from __future__ import annotations

from pathlib import Path

from goqueue.config import SETTINGS
from tools.settings_page import page

ROOT = Path(__file__).parents[3]


def test_every_default_is_allowed_by_its_own_rule() -> None:
    for setting in SETTINGS.values():
        kind = setting.about.kind
        assert kind.read(kind.show(setting.default)) == setting.default, setting.path


def test_no_two_settings_share_a_variable_or_a_flag() -> None:
    variables = [name for setting in SETTINGS.values() for name in setting.variables]
    flags = [setting.about.flag for setting in SETTINGS.values() if setting.about.flag]
    assert len(variables) == len(set(variables))
    assert len(flags) == len(set(flags))


def test_the_manual_page_is_current() -> None:
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs-settings`"
