"""`goqueue tenant`: create, show, suspend and delete tenants."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from goqueue.cli.connecting import announce, confirm, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.moments import show_time
from goqueue.cli.output import OutputForm, Row, print_item, print_rows
from goqueue.client.http import Tenant, TenantUsage

app = typer.Typer(no_args_is_help=True, help="Create, show, suspend and delete tenants.")

Name = Annotated[str, typer.Argument(help="Name of the tenant.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command()
def create(
    ctx: typer.Context,
    name: Name,
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    admin: Annotated[
        str | None,
        typer.Option(
            metavar="USER",
            help="User that may do everything in the tenant; create it there afterwards.",
        ),
    ] = None,
) -> None:
    """Create a tenant."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        made = client.tenants.create(name, description=description, admin=admin)
    _print_done(ctx, made, f"Tenant {name} is created.")


@app.command("list")
def list_tenants(
    ctx: typer.Context,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Most to show.")] = 1000,
) -> None:
    """List tenants."""
    with connect_http(ctx) as client:
        found = list(islice(client.tenants.list_all(), count))
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print("There is the default tenant only; `goqueue tenant create` creates another.")
    print_rows([_row(one) for one in found], form)


@app.command()
def show(ctx: typer.Context, name: Name) -> None:
    """Show a tenant."""
    with connect_http(ctx) as client:
        found = client.tenants.get(name)
    print_item(_row(found), current_call(ctx).output)


@app.command()
def suspend(
    ctx: typer.Context,
    name: Name,
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Refuse only what writes or changes something."),
    ] = False,
) -> None:
    """Refuse the users of a tenant everything, or everything but reading."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        changed = client.tenants.set_state(name, "read_only" if read_only else "suspended")
    what = "may only read" if read_only else "is suspended"
    _print_done(ctx, changed, f"Tenant {name} {what}.")


@app.command()
def activate(ctx: typer.Context, name: Name) -> None:
    """End the suspension of a tenant."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        changed = client.tenants.set_state(name, "active")
    _print_done(ctx, changed, f"Tenant {name} is active.")


@app.command()
def delete(
    ctx: typer.Context,
    name: Name,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete its users and all that it has too.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete a tenant."""
    with connect_http(ctx) as client:
        what = " with its users and all that it has" if purge else ""
        confirm(ctx, client, f"Delete tenant {name}{what}", yes=yes)
        client.tenants.delete(name, purge=purge)
    print(f"Tenant {name} is being deleted." if purge else f"Tenant {name} is deleted.")


@app.command()
def usage(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Name of the tenant; by default your own.")
    ] = None,
) -> None:
    """Show what a tenant has."""
    with connect_http(ctx) as client:
        found = client.tenants.own_usage() if name is None else client.tenants.usage(name)
    print_item(_usage_row(found), current_call(ctx).output)


def _print_done(ctx: typer.Context, tenant: Tenant, sentence: str) -> None:
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(sentence)
    else:
        print_item(_row(tenant), form)


def _row(tenant: Tenant) -> Row:
    return {
        "name": tenant.name,
        "state": tenant.state,
        "account": tenant.account,
        "users": tenant.users,
        "topics": tenant.topics,
        "created": show_time(tenant.created_at),
        "description": tenant.description,
    }


def _usage_row(usage: TenantUsage) -> Row:
    return {
        "users": usage.users,
        "topics": usage.topics,
        "partitions": usage.partitions,
        "queues": usage.queues,
        "groups": usage.groups,
        "subjects": usage.subjects,
        "scheduled": usage.scheduled,
        "stored_bytes": usage.stored_bytes,
    }
