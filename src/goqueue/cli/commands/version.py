"""`goqueue version`."""

from __future__ import annotations

from importlib.metadata import version

import typer

app = typer.Typer()


@app.command()
def show_version() -> None:
    """Print the version of GoQueue."""
    print(version("goqueue"))
