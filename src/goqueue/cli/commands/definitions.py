"""`goqueue definitions`: export what was set up in a cluster to one file, and import it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from goqueue.cli.connecting import connect_http
from goqueue.cli.context import current_call
from goqueue.cli.definitions import export, plan, read_definitions
from goqueue.cli.output import print_rows, yaml_text
from goqueue.model.errors import InvalidRequest

app = typer.Typer(
    no_args_is_help=True,
    help="Export topics, groups, schemas, users, rules, quotas and tenants to a file; import them.",
)


@app.command("export")
def export_definitions(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="The file.", show_default="standard output")
    ] = None,
) -> None:
    """Write the definitions of the cluster as YAML, without secrets."""
    with connect_http(ctx) as client:
        text = yaml_text(export(client))
    if file is None:
        sys.stdout.write(text)
    else:
        file.write_text(text, encoding="utf-8")


@app.command("import")
def import_definitions(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
) -> None:
    """Create and change what is in the file and not so in the cluster; nothing is deleted."""
    import yaml

    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidRequest(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    wanted = read_definitions(tree)
    with connect_http(ctx) as client:
        steps = plan(client, wanted)
        if not dry_run:
            for step in steps:
                step.perform()
    rows = [{"kind": one.kind, "name": one.name, "change": one.change} for one in steps]
    print_rows(rows, current_call(ctx).output)
