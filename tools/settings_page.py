"""Writes the manual page of the settings, docs/settings.md, from the table in goqueue.config."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from goqueue.config import SECTIONS, SETTINGS, Setting

INTRODUCTION = """\
# Settings

Written by `make docs-settings` from `src/goqueue/config.py`; change it there.

A setting comes from a flag, else from the environment, else from the settings file, else from its
default. The file is YAML, one mapping per section, named by `--config PATH` or `GOQUEUE_CONFIG`:

```yaml
storage:
  fsync: interval
  segment_bytes: 256MiB
```

Every setting has a variable, `GOQUEUE_<SECTION>_<NAME>`, and can be given as
`--set section.name=value`; those with a flag of their own also have a variable named after it.
Sizes are in bytes or carry a unit (`64MiB`), durations are in milliseconds or carry one
(`1s`, `7d`), and `-1` means unlimited where the range says so. `goqueue serve --print-config`
prints the settings in force, where each came from, and can be used as a settings file.
"""


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "".join(_section(name) for name in SECTIONS)


def _section(name: str) -> str:
    rows = [_row(setting) for setting in SETTINGS.values() if setting.section == name]
    table = "\n".join(["| setting | default | allowed | why |", "|---|---|---|---|", *rows])
    return f"\n## {name}\n\n{SECTIONS[name].__doc__}\n\n{table}\n"


def _row(setting: Setting) -> str:
    kind = setting.about.kind
    default = kind.show(setting.default)
    names = "<br>".join(f"`{name}`" for name in _names(setting))
    allowed = kind.allowed.replace("|", "\\|")
    return f"| {names} | {f'`{default}`' if default else ''} | {allowed} | {setting.about.why} |"


def _names(setting: Setting) -> Iterator[str]:
    yield setting.name
    if setting.about.flag:
        yield setting.about.flag
        yield from setting.variables[1:]


if __name__ == "__main__":
    sys.stdout.write(page())
