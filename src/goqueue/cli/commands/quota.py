"""`goqueue quota`: limit what users, client ids, addresses and tenants may use."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.connecting import announce, confirm, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, Row, print_rows
from goqueue.client.http import Quota, QuotaUse

app = typer.Typer(
    no_args_is_help=True, help="Limit what users, client ids, addresses and tenants may use."
)

User = Annotated[str | None, typer.Option(help="Name of a user.")]
ClientId = Annotated[str | None, typer.Option(help="Client id.")]
Ip = Annotated[str | None, typer.Option(help="Address.")]
Tenant = Annotated[str | None, typer.Option(help="Name of a tenant.")]
Default = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND",
        help="user, client-id, ip or tenant: for each that has no limit of its own.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command("set")
def set_limits(
    ctx: typer.Context,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="LIMIT=VALUE...",
            help="For example producer_byte_rate=10000000; without a value, the limit is removed.",
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    tenant: Tenant = None,
    default: Default = None,
) -> None:
    """Set limits; others of the same entity stay."""
    entity = _entity(user, client_id, ip, tenant, default)
    wanted = dict(map(_limit, limits))
    with connect_http(ctx) as client:
        announce(ctx, client)
        client.quotas.set(entity, wanted)
    print(f"The limits of {_text(entity)} are changed.")


@app.command("list")
def list_quotas(
    ctx: typer.Context,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    tenant: Tenant = None,
    default: Default = None,
) -> None:
    """List quotas: all, or those with some names."""
    entity = _entity(user, client_id, ip, tenant, default)
    with connect_http(ctx) as client:
        found = client.quotas.list_all(entity)
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print("There are no quotas; `goqueue quota set` sets one.")
    print_rows([row for one in found for row in _rows(one)], form)


@app.command()
def delete(
    ctx: typer.Context,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    tenant: Tenant = None,
    default: Default = None,
    yes: Yes = False,
) -> None:
    """Remove all limits of an entity."""
    entity = _entity(user, client_id, ip, tenant, default)
    with connect_http(ctx) as client:
        confirm(ctx, client, f"Remove all limits of {_text(entity)}", yes=yes)
        client.quotas.delete(entity)
    print(f"The limits of {_text(entity)} are removed.")


@app.command()
def usage(ctx: typer.Context) -> None:
    """Show how much of the limits is used in the cluster."""
    with connect_http(ctx) as client:
        found = client.quotas.usage()
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print("Nobody who has a limit has used it lately.")
    print_rows([_use(one) for one in found], form)


def _entity(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    tenant: str | None,
    default: list[str] | None,
) -> dict[str, str | None]:
    names = {"user": user, "client-id": client_id, "ip": ip, "tenant": tenant}
    entity: dict[str, str | None] = {kind: name for kind, name in names.items() if name}
    for kind in default or ():
        if kind in entity or kind not in names:
            raise typer.BadParameter(
                f"{kind!r}: give one of user, client-id, ip and tenant, without its name.",
                param_hint="--default",
            )
        entity[kind] = None
    return entity


def _limit(text: str) -> tuple[str, float | None]:
    name, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"{text!r} has no =; write LIMIT=VALUE.")
    try:
        return name, float(value) if value else None
    except ValueError:
        raise typer.BadParameter(f"{value!r} is not a number.") from None


def _text(entity: dict[str, str | None]) -> str:
    names = (f"{kind} {name}" if name else f"default {kind}" for kind, name in entity.items())
    return ", ".join(names) or "nothing"


def _rows(quota: Quota) -> list[Row]:
    return [
        {"entity": _text(quota.entity), "limit": name, "value": _number(value)}
        for name, value in quota.limits.items()
    ]


def _use(one: QuotaUse) -> Row:
    return {
        "entity": _text(one.entity),
        "limit": one.limit,
        "value": _number(one.value),
        "used": _number(one.used),
        "wait_ms": one.wait_ms,
    }


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value
