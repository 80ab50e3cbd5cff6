"""`goqueue role`: roles, which users have, and whose rules apply to all of them."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from goqueue.cli.connecting import announce, confirm, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, Row, print_item, print_rows
from goqueue.client.http import Role

app = typer.Typer(no_args_is_help=True, help="Create roles, and give them to users.")

Name = Annotated[str, typer.Argument(help="Name of the role.")]
Users = Annotated[list[str], typer.Argument(help="Names of users.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command()
def create(
    ctx: typer.Context,
    name: Name,
    users: Annotated[list[str] | None, typer.Argument(help="Users that have it.")] = None,
) -> None:
    """Create a role; `goqueue acl create --allow Role:NAME` makes its rules."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        made = client.roles.create(name, _principals(users or []))
    print_item(_row(made), current_call(ctx).output)


@app.command("list")
def list_roles(
    ctx: typer.Context,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Most to show.")] = 1000,
) -> None:
    """List roles."""
    with connect_http(ctx) as client:
        found = list(islice(client.roles.list_all(), count))
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print("There are no roles; `goqueue role create` creates one.")
    print_rows([_row(one) for one in found], form)


@app.command()
def show(ctx: typer.Context, name: Name) -> None:
    """Show a role."""
    with connect_http(ctx) as client:
        found = client.roles.get(name)
    print_item(_row(found), current_call(ctx).output)


@app.command()
def grant(ctx: typer.Context, name: Name, users: Users) -> None:
    """Give a role to users."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        changed = client.roles.grant(name, _principals(users))
    print_item(_row(changed), current_call(ctx).output)


@app.command()
def revoke(ctx: typer.Context, name: Name, users: Users) -> None:
    """Take a role from users."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        changed = client.roles.revoke(name, _principals(users))
    print_item(_row(changed), current_call(ctx).output)


@app.command()
def delete(ctx: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a role and its rules."""
    with connect_http(ctx) as client:
        confirm(ctx, client, f"Delete role {name} and its rules", yes=yes)
        client.roles.delete(name)
    print(f"Role {name} is deleted.")


def _principals(users: list[str]) -> list[str]:
    return [one if one.startswith("User:") else f"User:{one}" for one in users]


def _row(role: Role) -> Row:
    names = [one.removeprefix("User:") for one in role.members]
    return {"name": role.name, "users": ", ".join(names)}
