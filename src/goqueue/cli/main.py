"""The entry point: selects the command, and turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from goqueue.cli.completing import BY_PARAMETER, BY_PARAMETER_OF_CONFIG, add_completion
from goqueue.cli.context import add_shared_options
from goqueue.model.errors import GoQueueError, InvalidSettings

# In the order of the help. The module of each is in `goqueue.cli.commands`.
COMMANDS = (
    "serve",
    "topic",
    "produce",
    "consume",
    "group",
    "queue",
    "schedule",
    "schema",
    "txn",
    "trace",
    "audit",
    "user",
    "key",
    "quota",
    "acl",
    "role",
    "tenant",
    "cluster",
    "backup",
    "definitions",
    "top",
    "bench",
    "pipeline",
    "config",
    "completion",
    "version",
)
# These commands do not connect to a broker, so they do not take its options.
WITHOUT_SHARED_OPTIONS = {"serve", "completion", "version"}

EXIT_ERROR = 1
EXIT_USAGE = 2


class Commands(TyperGroup):
    """Imports a command when it is needed; only `--help` imports all of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(f"goqueue.cli.commands.{cmd_name}").app)
        command.name = cmd_name
        # Shell completion is installed once for `goqueue`, not per command.
        command.params = [param for param in command.params if not _is_completion(param)]
        if cmd_name not in WITHOUT_SHARED_OPTIONS:
            add_shared_options(command)
        add_completion(command, BY_PARAMETER_OF_CONFIG if cmd_name == "config" else BY_PARAMETER)
        return command


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from goqueue.cli.commands.version import show_version

        show_version()
        raise typer.Exit


@app.callback()
def _goqueue(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A durable, replicated message log and queue with Kafka, HTTP and SQS interfaces."""


def main() -> None:
    """Run the command line of this process and exit."""
    command = typer.main.get_command(app)
    add_shared_options(command)
    add_completion(command, BY_PARAMETER)
    try:
        command(prog_name="goqueue")
    except InvalidSettings as error:
        _complain(error.problems)
        sys.exit(EXIT_USAGE)
    except GoQueueError as error:
        _complain([str(error)])
        sys.exit(EXIT_ERROR)


def _is_completion(param: Any) -> bool:
    return param.name in ("install_completion", "show_completion")


def _complain(lines: list[str]) -> None:
    for line in lines:
        typer.secho(line, fg=typer.colors.RED, err=True)
