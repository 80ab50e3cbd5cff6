"""Runs the code of a documentation page from top to bottom and compares what it prints.

```console   commands after `$ `, each with the output that follows it; one shell for the page
```python    code; one interpreter for the page
```text      what the Python block above it prints
```sh        how to start something: not run here, but its targets and flags are checked

In the expected output `…` stands for a part of a line that differs from run to run, or, alone on a
line, for any number of lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.integration.process import END_WITH_US

ROOT = Path(__file__).parents[1]
ANYTHING = "…"
LANGUAGES = {"console", "python", "text", "sh", "mermaid", "json", "yaml"}
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    text: str


class Cell(NamedTuple):
    """A piece of code, and what the page says it prints."""

    line: int
    language: str
    code: str
    printed: str


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page."""
    found = _BLOCK.finditer(page)
    return [Block(page[: one.start()].count("\n") + 1, one[1], one[2]) for one in found]


def cells(page: str) -> Iterator[Cell]:
    """The code of a page in its order; a block of commands is one cell for each command."""
    every = blocks(page)
    for number, block in enumerate(every):
        if block.language == "python":
            follows = every[number + 1 : number + 2]
            printed = follows[0].text if follows and follows[0].language == "text" else ""
            yield Cell(block.line, "python", block.text, printed)
        elif block.language == "console":
            yield from _commands(block)


def _commands(block: Block) -> Iterator[Cell]:
    # The lines of a here-document, or those after a backslash, belong to their command.
    for text in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = text.split("\n")
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        here = re.search(r"<<'?(\w+)'?", lines[0])
        if here is not None:
            count = lines.index(here[1]) + 1
        yield Cell(block.line, "console", "\n".join(lines[:count]), "\n".join(lines[count:]))


def is_like(printed: str, expected: str) -> bool:
    """Equal, where the page does not say … for a part of a line or for some lines."""
    lines = expected.rstrip("\n").split("\n")
    return re.fullmatch("".join(map(_pattern, lines)), printed.rstrip("\n") + "\n") is not None


def _pattern(line: str) -> str:
    if line == ANYTHING:
        return r"(?:.*\n)*?"
    return re.escape(line).replace(ANYTHING, ".*?") + r"\n"


class Reader:
    """Somebody who types what a page says, at a node with other addresses than the page has."""

    def __init__(self, home: Path, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses  # those of the page, and those that are meant
        self.names: dict[str, Any] = {"__name__": "page"}
        self._end = f"end-{uuid.uuid4().hex}"
        kept = {name: text for name, text in os.environ.items() if "GOQUEUE" not in name}
        self._shell = subprocess.Popen(
            [*END_WITH_US, "bash", "--norc", "-o", "pipefail"],
            cwd=home,
            env={
                **kept,
                "HOME": str(home),
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "COLUMNS": "160",
                **{
                    f"GOQUEUE_{name}": addresses[written]
                    for name, written in (("BOOTSTRAP", "127.0.0.1:9092"),)
                    if written in addresses
                },
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def follow(self, page: Path) -> None:
        """Run the page, and compare."""
        for cell in cells(page.read_text(encoding="utf-8")):
            printed = self.run(cell)
            assert is_like(printed, cell.printed), (
                f"{page.name}, block of line {cell.line}\n{cell.code}\nprinted\n{printed}"
            )

    def run(self, cell: Cell) -> str:
        """What the code prints, with the addresses that the page has."""
        code = self.addressed(cell.code)
        printed = self._python(code) if cell.language == "python" else self._command(code)
        for written, meant in self.addresses.items():
            printed = printed.replace(meant, written)
        return printed

    def addressed(self, code: str) -> str:
        """The code with the addresses that are meant."""
        for written, meant in self.addresses.items():
            code = code.replace(written, meant)
        return code

    def _python(self, code: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(code, "page", "exec"), self.names)
        return output.getvalue()

    def _command(self, code: str) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(
            f"{{ {code}\n}} </dev/null; status=$?; echo; echo {self._end} $status\n"
        )
        self._shell.stdin.flush()
        printed, status = self._until_end(self._shell.stdout)
        assert status == 0, f"{code}\nfailed:\n{printed}"
        return printed

    def _until_end(self, output: IO[str]) -> tuple[str, int]:
        lines: list[str] = []
        for line in output:
            if line.startswith(self._end):
                return "".join(lines).removesuffix("\n"), int(line.split()[1])
            lines.append(line)
        raise AssertionError(f"the shell ended: {''.join(lines)}")

    def close(self) -> None:
        """End the shell with all that it has started, and forget all names."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()
        self.names.clear()


def check_starts(page: str) -> None:
    """The commands of `sh` blocks exist: targets of make, and flags of `goqueue serve`."""
    for block in blocks(page):
        if block.language != "sh":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                done = _run(["make", "--dry-run", *words[1:]])
            elif words[:2] == ["goqueue", "serve"]:
                done = _run([sys.executable, "-m", *words, "--print-config"])
            else:
                assert not words or words[0] in (".", "cd", "git", "export", "pip"), line
                continue
            assert done.returncode == 0, f"{line}\n{done.stderr}"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
