"""Checks `goqueue` commands without running them."""

from __future__ import annotations

import shlex

import typer

from goqueue.cli.context import add_shared_options
from goqueue.cli.main import app


def check_command(line: str) -> None:
    """Refuse a command, or an option of it, that does not exist."""
    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    add_shared_options(command)
    while hasattr(command, "get_command"):
        below = command.get_command(typer.Context(command), words[0]) if words else None
        if below is None:
            assert not words, line
            return
        command, words = below, words[1:]
    # Half a command, in a sentence, names what to use and leaves out with what.
    command.make_context(line, words, resilient_parsing=not words)
