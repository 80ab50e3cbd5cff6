"""`goqueue key`: create, list, rotate and delete the keys of users."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from goqueue.cli.connecting import announce, confirm, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.moments import read_duration_ms, read_time_ms, show_time
from goqueue.cli.output import OutputForm, Row, print_item, print_rows
from goqueue.client.http import Key, NewKey
from goqueue.model.errors import InvalidRequest

app = typer.Typer(no_args_is_help=True, help="Create, list, rotate and delete keys of users.")


class Kind(enum.StrEnum):
    API = "api"
    ACCESS = "access"


User = Annotated[str, typer.Argument(help="Name of the user.")]
Id = Annotated[str, typer.Argument(help="Id of the key.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="90d|TIME", help="When it expires: after a time, or at one."),
]


@app.command()
def create(
    ctx: typer.Context,
    user: User,
    kind: Annotated[
        Kind, typer.Option(help="api: sent by clients; access: for SQS clients, which sign.")
    ] = Kind.API,
    expires: Expires = None,
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
) -> None:
    """Create a key, and print its secret, which is not shown again."""
    ttl, expires_at = read_expiry(expires)
    with connect_http(ctx) as client:
        announce(ctx, client)
        made = client.keys.create(
            user, kind=kind.value, description=description, ttl=ttl, expires_at=expires_at
        )
    _print_new(ctx, made)


@app.command("list")
def list_keys(ctx: typer.Context, user: User) -> None:
    """List the keys of a user."""
    with connect_http(ctx) as client:
        found = client.keys.list_all(user)
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print(f"User {user} has no keys; `goqueue key create {user}` creates one.")
    print_rows([_row(one) for one in found], form)


@app.command()
def show(ctx: typer.Context, key_id: Id) -> None:
    """Show a key, without its secret."""
    with connect_http(ctx) as client:
        found = client.keys.get(key_id)
    print_item(_row(found), current_call(ctx).output)


@app.command()
def rotate(
    ctx: typer.Context,
    key_id: Id,
    overlap: Annotated[
        str, typer.Option(metavar="24h", help="For how long the old key stays valid.")
    ] = "24h",
    expires: Expires = None,
) -> None:
    """Create a key like another one, which then expires, and print the new secret."""
    ttl, expires_at = read_expiry(expires)
    with connect_http(ctx) as client:
        announce(ctx, client)
        made = client.keys.rotate(
            key_id, overlap=read_duration_ms(overlap) / 1000, ttl=ttl, expires_at=expires_at
        )
    _print_new(ctx, made)


@app.command()
def delete(ctx: typer.Context, key_id: Id, yes: Yes = False) -> None:
    """Delete a key, and end its sessions."""
    with connect_http(ctx) as client:
        confirm(ctx, client, f"Delete key {key_id}", yes=yes)
        client.keys.delete(key_id)
    print(f"Key {key_id} is deleted.")


def read_expiry(text: str | None) -> tuple[float | None, int | None]:
    """Return a lifetime in seconds, or a time in milliseconds, or neither."""
    if text is None:
        return None, None
    if not text.isdecimal():
        try:
            return read_duration_ms(text) / 1000, None
        except InvalidRequest:
            pass
    return None, read_time_ms(text)


def _print_new(ctx: typer.Context, made: NewKey) -> None:
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print_item(_row(made.key), form)
        # On a line of its own: a table may be cut to the width of the terminal.
        print(f"\nThe secret is not shown again:\n{made.secret}")
    else:
        print_item({**_row(made.key), "secret": made.secret}, form)


def _row(key: Key) -> Row:
    return {
        "id": key.id,
        "kind": key.kind,
        "user": key.user,
        "created": show_time(key.created_at),
        "created_by": key.created_by,
        "expires": None if key.expires_at is None else show_time(key.expires_at),
        "last_used": None if key.last_used_at is None else show_time(key.last_used_at),
        "description": key.description,
    }
