"""`goqueue acl`: create, list, delete and test rules of access control."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, NamedTuple, cast, get_args

import typer

from goqueue.cli.connecting import announce, confirm, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, Row, print_item, print_rows
from goqueue.client.http import (
    Acl,
    AclAction,
    AclKind,
    AclPermission,
    AclSelection,
    Client,
    NewAcl,
)

app = typer.Typer(no_args_is_help=True, help="Create, list, delete and test rules of access.")

CLUSTER_NAME = "kafka-cluster"
_ACTIONS = get_args(AclAction)

Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="USER", help="User or Role:NAME to allow; repeat."),
]
Deny = Annotated[
    list[str] | None,
    typer.Option("--deny", metavar="USER", help="User or Role:NAME to deny; repeat."),
]
Action = Annotated[
    list[str] | None,
    typer.Option("--action", "-a", metavar="ACTION", help=f"One of {', '.join(_ACTIONS)}; repeat."),
]
Topic = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="Topic or queue; `*` is all.")
]
Group = Annotated[list[str] | None, typer.Option("--group", "-g", help="Group; `*` is all.")]
TransactionalId = Annotated[
    list[str] | None, typer.Option("--transactional-id", help="Transactional id; `*` is all.")
]
Subject = Annotated[
    list[str] | None, typer.Option("--subject", help="Subject of the schema registry.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The names are prefixes.")]
Hosts = Annotated[list[str] | None, typer.Option("--host", help="IP address; by default all.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class Resources(NamedTuple):
    """The resources that a command names."""

    topics: list[str]
    groups: list[str]
    transactional_ids: list[str]
    subjects: list[str]
    is_cluster: bool

    def all(self) -> list[tuple[AclKind, str]]:
        found: list[tuple[AclKind, str]] = [("TOPIC", one) for one in self.topics]
        found += [("GROUP", one) for one in self.groups]
        found += [("TRANSACTIONAL_ID", one) for one in self.transactional_ids]
        found += [("SUBJECT", one) for one in self.subjects]
        return found + ([("CLUSTER", CLUSTER_NAME)] if self.is_cluster else [])


def _resources(
    topics: list[str] | None,
    groups: list[str] | None,
    transactional_ids: list[str] | None,
    subjects: list[str] | None,
    is_cluster: bool,
) -> Resources:
    return Resources(
        topics or [], groups or [], transactional_ids or [], subjects or [], is_cluster
    )


@app.command()
def create(
    ctx: typer.Context,
    allow: Allow = None,
    deny: Deny = None,
    action: Action = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    subject: Subject = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Hosts = None,
    producer: Annotated[
        bool,
        typer.Option("--producer", help="What a producer needs: WRITE, DESCRIBE, CREATE topics."),
    ] = False,
    consumer: Annotated[
        bool,
        typer.Option(
            "--consumer", help="What a consumer needs: READ, DESCRIBE topics; READ groups."
        ),
    ] = False,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="With --producer: IDEMPOTENT_WRITE cluster.")
    ] = False,
) -> None:
    """Create rules, for each user and each resource."""
    who = [("ALLOW", one) for one in allow or ()] + [("DENY", one) for one in deny or ()]
    if not who:
        raise typer.BadParameter("Name a user with --allow or --deny.")
    named = _resources(topic, group, transactional_id, subject, cluster)
    actions = _actions(action or [])
    if producer or consumer:
        wanted = _convenient(named, actions, is_producer=producer, is_consumer=consumer)
        if producer and idempotent:
            wanted.append(("CLUSTER", CLUSTER_NAME, "IDEMPOTENT_WRITE"))
    else:
        wanted = [(*one, each) for one in named.all() for each in actions]
    if not wanted:
        raise typer.BadParameter("Name resources, such as --topic orders, and an --action.")
    acls = [
        NewAcl(
            kind=kind,
            name=name,
            pattern="PREFIXED" if prefixed and kind != "CLUSTER" else "LITERAL",
            principal=_principal(user),
            host=where,
            action=cast(AclAction, each),
            permission=cast(AclPermission, permission),
        )
        for permission, user in who
        for kind, name, each in wanted
        for where in host or ["*"]
    ]
    with connect_http(ctx) as client:
        announce(ctx, client)
        made = client.acls.create(acls)
    _print(ctx, made.acls, is_enforced=made.enforced)


def _convenient(
    named: Resources, actions: list[str], *, is_producer: bool, is_consumer: bool
) -> list[tuple[AclKind, str, str]]:
    """Return the resources and actions of producers and consumers, as `kafka-acls` does."""
    if actions:
        raise typer.BadParameter("--producer and --consumer need no --action.")
    if not named.topics or (is_consumer and not named.groups):
        raise typer.BadParameter("Name --topic, and for consumers --group.")
    wanted: list[tuple[AclKind, str, str]] = []
    if is_producer:
        for one in named.topics:
            wanted += [("TOPIC", one, each) for each in ("WRITE", "DESCRIBE", "CREATE")]
        for one in named.transactional_ids:
            wanted += [("TRANSACTIONAL_ID", one, each) for each in ("WRITE", "DESCRIBE")]
    if is_consumer:
        for one in named.topics:
            wanted += [("TOPIC", one, each) for each in ("READ", "DESCRIBE")]
        wanted += [("GROUP", one, "READ") for one in named.groups]
    return list(dict.fromkeys(wanted))


@app.command("list")
def list_acls(
    ctx: typer.Context,
    principal: Annotated[str | None, typer.Option("--user", "-u", help="Of this user.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="For this topic.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="For this group.")] = None,
    transactional_id: Annotated[str | None, typer.Option(help="For this one.")] = None,
    subject: Annotated[str | None, typer.Option(help="For this subject.")] = None,
    cluster: Cluster = False,
    matching: Annotated[
        bool, typer.Option("--matching", help="All that apply to the name, prefixes too.")
    ] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Most to show.")] = 1000,
) -> None:
    """List rules."""
    fields = _selection(principal, topic, group, transactional_id, subject, cluster)
    if matching:
        fields["pattern"] = "MATCH"
    selection = AclSelection(**fields)
    with connect_http(ctx) as client:
        found = list(islice(client.acls.list_all(selection), count))
        is_enforced = client.acls.list_page(limit=1).enforced
    if not found and current_call(ctx).output is OutputForm.TABLE:
        print("There are no such rules; `goqueue acl create` creates them.")
    _print(ctx, found, is_enforced=is_enforced)


@app.command()
def delete(
    ctx: typer.Context,
    principal: Annotated[str | None, typer.Option("--user", "-u", help="Of this user.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="For this topic.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="For this group.")] = None,
    transactional_id: Annotated[str | None, typer.Option(help="For this one.")] = None,
    subject: Annotated[str | None, typer.Option(help="For this subject.")] = None,
    cluster: Cluster = False,
    action: Annotated[str | None, typer.Option("--action", "-a", help="With this action.")] = None,
    prefixed: Prefixed = False,
    every: Annotated[bool, typer.Option("--all", help="Every rule.")] = False,
    yes: Yes = False,
) -> None:
    """Delete the selected rules."""
    fields = _selection(principal, topic, group, transactional_id, subject, cluster)
    if action is not None:
        [fields["action"]] = _actions([action])
    if prefixed:
        fields["pattern"] = "PREFIXED"
    if not fields and not every:
        raise typer.BadParameter("Select rules, or pass --all for every rule.")
    selection = AclSelection(**fields)
    with connect_http(ctx) as client:
        doomed = client.acls.delete(selection, all=every, dry_run=True)
        if not doomed:
            print("There are no such rules.")
            return
        _print(ctx, doomed)
        confirm(ctx, client, f"Delete these {len(doomed)} rules", yes=yes)
        deleted = client.acls.delete(selection, all=every)
    print(f"{len(deleted)} rules are deleted.")


@app.command("test")
def show_verdict(
    ctx: typer.Context,
    user: Annotated[str, typer.Option("--user", "-u", help="User to test.")],
    action: Annotated[str, typer.Option("--action", "-a", help="What the user wants to do.")],
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    subject: Subject = None,
    cluster: Cluster = False,
    host: Annotated[str, typer.Option(help="IP address of the client.")] = "*",
) -> None:
    """Show whether a user may do something, and which rule decides."""
    [wanted] = _actions([action])
    named = _resources(topic, group, transactional_id, subject, cluster).all()
    if not named:
        raise typer.BadParameter("Name a resource, such as --topic orders.")
    with connect_http(ctx) as client:
        rows = [_tested(client, user, wanted, kind, name, host) for kind, name in named]
    form = current_call(ctx).output
    if len(rows) == 1:
        print_item(rows[0], form)
    else:
        print_rows(rows, form)


def _tested(client: Client, user: str, action: str, kind: AclKind, name: str, host: str) -> Row:
    found = client.acls.test(_principal(user), cast(AclAction, action), kind, name, host=host)
    return {
        "resource": f"{kind} {name}",
        "action": action,
        "allowed": found.allowed,
        "reason": found.reason if found.enforced else f"{found.reason}; access control is off",
        "rule": "" if found.acl is None else " ".join(str(one) for one in _row(found.acl).values()),
    }


def _selection(
    principal: str | None,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    subject: str | None,
    cluster: bool,
) -> dict[str, Any]:
    kinds = {
        "TOPIC": topic,
        "GROUP": group,
        "TRANSACTIONAL_ID": transactional_id,
        "SUBJECT": subject,
        "CLUSTER": CLUSTER_NAME if cluster else None,
    }
    named = [(kind, name) for kind, name in kinds.items() if name is not None]
    if len(named) > 1:
        raise typer.BadParameter("Name one resource.")
    fields: dict[str, Any] = {}
    if principal is not None:
        fields["principal"] = _principal(principal)
    for kind, name in named:
        fields |= {"kind": kind, "name": name}
    return fields


def _actions(given: list[str]) -> list[str]:
    """Return actions in the form of the API; kafka-acls writes `DescribeConfigs`, others `READ`."""
    known = {one.replace("_", ""): one for one in _ACTIONS}
    found = []
    for one in given:
        action = known.get(one.upper().replace("_", "").replace("-", ""))
        if action is None:
            raise typer.BadParameter(f"{one!r} is no action; use one of {', '.join(_ACTIONS)}.")
        found.append(action)
    return found


def _principal(user: str) -> str:
    return user if user.startswith(("User:", "Role:")) else f"User:{user}"


def _print(ctx: typer.Context, acls: list[Acl], *, is_enforced: bool = True) -> None:
    print_rows([_row(one) for one in acls], current_call(ctx).output)
    if not is_enforced:
        typer.echo(
            "Access control is off on this node (security.access_control): rules have no effect.",
            err=True,
        )


def _row(acl: Acl) -> Row:
    is_prefix = acl.pattern == "PREFIXED"
    return {
        "permission": acl.permission,
        "principal": acl.principal,
        "action": acl.action,
        "kind": acl.kind,
        "name": acl.name,
        "pattern": "prefix" if is_prefix else "literal",
        "host": acl.host,
    }
