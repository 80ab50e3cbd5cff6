"""`goqueue version`."""

from __future__ import annotations

import typer

from goqueue.model.support import release

app = typer.Typer()


@app.command()
def show_version() -> None:
    """Print the version of GoQueue."""
    print(release())
