"""Passwords that a command needs: from a file, from standard input, or typed without an echo.

None is an argument of a command, because the list of processes shows those to everybody.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from goqueue.model.errors import InvalidRequest

STANDARD_INPUT = Path("-")
PASSWORD_BYTES_MAX = 16 << 10


def new_password(file: Path | None, *, user: str) -> str:
    """Return a new password: the first line of a file or of standard input, else as typed."""
    if file is not None and file != STANDARD_INPUT:
        return _first_line(_read(file), str(file))
    if file is None and sys.stdin.isatty():
        typed: str = typer.prompt(
            f"New password of {user}", hide_input=True, confirmation_prompt=True, err=True
        )
        return typed
    return _first_line(sys.stdin.read(PASSWORD_BYTES_MAX), "standard input")


def known_password(file: Path, *, what: str) -> str:
    """Return a secret that exists: the first line of a file, or of standard input."""
    if file != STANDARD_INPUT:
        return _first_line(_read(file), str(file))
    if sys.stdin.isatty():
        typed: str = typer.prompt(what, hide_input=True, err=True)
        return typed
    return _first_line(sys.stdin.readline(PASSWORD_BYTES_MAX), "standard input")


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(PASSWORD_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequest(f"The password cannot be read from {file}: {reason}.") from None


def _first_line(text: str, source: str) -> str:
    line = text.partition("\n")[0].rstrip("\r")
    if not line:
        raise InvalidRequest(f"There is no password in the first line of {source}.")
    return line
