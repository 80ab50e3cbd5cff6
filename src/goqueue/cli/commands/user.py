"""`goqueue user`: create, show, change and delete users."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from goqueue.cli.connecting import announce, confirm, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.moments import show_time
from goqueue.cli.output import OutputForm, Row, print_item, print_rows
from goqueue.cli.passwords import new_password
from goqueue.client.http import User, Whoami

app = typer.Typer(no_args_is_help=True, help="Create, show, change and delete users.")

Name = Annotated[str, typer.Argument(help="Name of the user.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File whose first line is the password; - is standard input. By default it is typed.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command()
def create(
    ctx: typer.Context,
    name: Name,
    password_file: PasswordFile = None,
    no_password: Annotated[
        bool,
        typer.Option("--no-password", help="For users of keys, certificates or tokens only."),
    ] = False,
    tenant: Annotated[str | None, typer.Option(help="Tenant; by default your own.")] = None,
) -> None:
    """Create a user."""
    password = None if no_password else new_password(password_file, user=name)
    with connect_http(ctx) as client:
        announce(ctx, client)
        made = client.users.create(name, password, tenant=tenant)
    _print_done(ctx, made, f"User {name} is created.")


@app.command("list")
def list_users(
    ctx: typer.Context,
    prefix: Annotated[str, typer.Option(help="Only names that start so.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Most to show.")] = 1000,
) -> None:
    """List users."""
    with connect_http(ctx) as client:
        found = list(islice(client.users.list_all(prefix=prefix), count))
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print("There are no users; `goqueue user create` creates one.")
    print_rows([_row(one) for one in found], form)


@app.command()
def show(ctx: typer.Context, name: Name) -> None:
    """Show a user."""
    with connect_http(ctx) as client:
        found = client.users.get(name)
    print_item(_row(found), current_call(ctx).output)


@app.command()
def whoami(ctx: typer.Context) -> None:
    """Show who you are to the broker."""
    with connect_http(ctx) as client:
        found = client.users.whoami()
    print_item(_identity(found), current_call(ctx).output)


@app.command("set-password")
def set_password(ctx: typer.Context, name: Name, password_file: PasswordFile = None) -> None:
    """Replace the password of a user."""
    password = new_password(password_file, user=name)
    with connect_http(ctx) as client:
        announce(ctx, client)
        client.users.set_password(name, password)
    print(f"The password of {name} is changed.")


@app.command()
def disable(ctx: typer.Context, name: Name) -> None:
    """Refuse all credentials of a user, and end its sessions."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        changed = client.users.disable(name)
    _print_done(ctx, changed, f"User {name} is disabled.")


@app.command()
def enable(ctx: typer.Context, name: Name) -> None:
    """Accept the credentials of a disabled user again."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        changed = client.users.enable(name)
    _print_done(ctx, changed, f"User {name} is enabled.")


@app.command()
def delete(ctx: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a user and its keys."""
    with connect_http(ctx) as client:
        confirm(ctx, client, f"Delete user {name} and its keys", yes=yes)
        client.users.delete(name)
    print(f"User {name} is deleted.")


def _print_done(ctx: typer.Context, user: User, sentence: str) -> None:
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(sentence)
    else:
        print_item(_row(user), form)


def _row(user: User) -> Row:
    return {
        "name": user.name,
        "tenant": user.tenant,
        "disabled": user.disabled,
        "super_user": user.super_user,
        "password": bool(user.mechanisms),
        "keys": user.keys,
        "created": show_time(user.created_at),
    }


def _identity(found: Whoami) -> Row:
    return {
        "principal": found.principal,
        "authenticated": found.authenticated,
        "tenant": found.tenant,
        "mechanism": found.mechanism,
        "key": found.key,
        "expires": None if found.expires_at is None else show_time(found.expires_at),
        "super_user": found.super_user,
    }
