"""`goqueue completion`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

app = typer.Typer()


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="The shell that reads it.")]) -> None:
    """Print a script that completes commands, topics, groups and contexts in a shell.

    Load it in bash with: eval "$(goqueue completion bash)"
    """
    print(
        get_completion_script(
            prog_name="goqueue", complete_var="_GOQUEUE_COMPLETE", shell=shell.value
        )
    )
