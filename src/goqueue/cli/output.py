"""Prints rows as a table for people, or as JSON or YAML for programs; shows progress bars."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

_FOLDED = "\N{NEXT LINE}\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}"

Row = Mapping[str, object]
Tick = Callable[[int], object]


class OutputForm(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_rows(rows: Sequence[Row], form: OutputForm) -> None:
    """Print rows with the same columns."""
    sys.stdout.write(render_rows(rows, form, width=terminal_width()))


def print_item(item: Row, form: OutputForm) -> None:
    """Print one item: a line per property, or a single object."""
    if form is OutputForm.TABLE:
        print_rows([{"name": name, "value": value} for name, value in item.items()], form)
    else:
        sys.stdout.write(_dump(dict(item), form))


def show_size(count: int) -> str:
    """A number of bytes with a readable unit."""
    size = float(count)
    for suffix in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {suffix}" if suffix == "B" else f"{size:.1f} {suffix}"
        size /= 1024
    return f"{size:.1f} TiB"


def plain(text: str) -> str:
    """A text that a client has chosen, without what a terminal would obey."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


@contextmanager
def progress(total: int) -> Iterator[Tick]:
    """Show a bar on standard error, or nothing if that is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


def render_rows(rows: Sequence[Row], form: OutputForm, *, width: int | None) -> str:
    """The text of `rows`; a table is cut to `width` columns if given."""
    if form is OutputForm.TABLE:
        return _table(rows, width)
    return _dump([dict(row) for row in rows], form)


def _dump(tree: object, form: OutputForm) -> str:
    if form is OutputForm.JSON:
        return json.dumps(tree, indent=2, ensure_ascii=False, default=str) + "\n"
    return yaml_text(tree)


def yaml_text(tree: object) -> str:
    """A document that reads back as it was, whatever its texts contain."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Escapes the line breaks that YAML would fold with those around them."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        style = '"' if any(one in text for one in _FOLDED) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    return str(yaml.dump(tree, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def _table(rows: Sequence[Row], width: int | None) -> str:
    if not rows:
        return ""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        is_number = isinstance(rows[0][name], int | float)
        table.add_column(name.upper(), justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        # Text, because square brackets in a plain string would be read as markup.
        table.add_row(*(Text(_cell(row.get(name))) for name in rows[0]))
    # A pipe has no width; another program must receive the whole text.
    console = Console(width=width or 100_000, force_terminal=width is not None, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def terminal_width() -> int | None:
    """The columns of the terminal; None if standard output is none."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns
