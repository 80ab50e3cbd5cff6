"""Writes manual pages from the parser of the command line: of `goqueue` and of each command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from tools.command_tree import Command, Parameter, commands, shared_parameters

FOLDER = Path(__file__).parents[1] / "build" / "man" / "man1"


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    every = list(commands())
    root = every[0]
    first = [one for one in every if len(one.path) == 1]
    made = {"goqueue.1": _page("goqueue", root.summary, _of_all(root, first))}
    for command in first:
        below = [one for one in every if one.path[:1] == command.path]
        name = f"goqueue-{command.path[0]}"
        made[f"{name}.1"] = _page(name, command.summary, _of_one(below))
    return made


def _page(name: str, summary: str, body: Iterator[str]) -> str:
    head = [
        f'.TH "{name.upper()}" "1" "" "goqueue {version("goqueue")}" "GoQueue"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(summary)}",
    ]
    return "\n".join([*head, *body]) + "\n"


def _of_all(root: Command, first: Sequence[Command]) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    yield "\\fBgoqueue\\fR [OPTIONS] COMMAND [ARGUMENTS]"
    yield ".SH COMMANDS"
    for one in first:
        yield from _item(f"goqueue-{one.path[0]}(1)", one.summary)
    yield ".SH OPTIONS"
    yield from _parameters([*root.parameters, *shared_parameters()])


def _of_one(below: Sequence[Command]) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    for one in below:
        if not one.is_group:
            yield f"\\fB{_text(one.usage)}\\fR"
            yield ".br"
    yield ".SH DESCRIPTION"
    yield _text(below[0].help)
    for one in below:
        if one.is_group:
            continue
        if len(one.path) > 1:
            yield f'.SH "{_text(one.name.upper())}"'
            yield _text(one.help)
        yield from _parameters(one.own)
    yield ".SH SEE ALSO"
    yield "goqueue(1)"


def _parameters(parameters: Sequence[Parameter]) -> Iterator[str]:
    for one in parameters:
        yield from _item(one.typed, one.help)


def _item(name: str, meaning: str) -> Iterator[str]:
    yield ".TP"
    yield f"\\fB{_text(name)}\\fR"
    yield _text(meaning) or "\\&"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("\n\n", "\n.PP\n")
    lines = escaped.split("\n")
    # A line that begins with a dot or a quote would be a request of roff.
    return "\n".join(
        f"\\&{one}" if one[:1] in (".", "'") and one != ".PP" else one for one in lines
    )


def main() -> None:
    """Write the pages into build/man, or into the folder that is named."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(pages())} pages in {folder}; read one with: man {folder}/goqueue.1")


if __name__ == "__main__":
    main()
