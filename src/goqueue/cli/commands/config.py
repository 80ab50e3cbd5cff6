"""`goqueue config`: named contexts, each with the addresses of a broker and a login."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from goqueue.cli.context import (
    Call,
    Context,
    Contexts,
    contexts_file,
    current_call,
    load_contexts,
    save_contexts,
    show_contexts,
)
from goqueue.cli.output import print_item, print_rows

app = typer.Typer(no_args_is_help=True, help="Manage contexts: named brokers to choose from.")

Name = Annotated[str, typer.Argument(help="Name of the context.")]


@app.command()
def view(ctx: typer.Context) -> None:
    """Print the file of contexts."""
    print(show_contexts(_load(current_call(ctx))), end="")


@app.command()
def get_contexts(ctx: typer.Context) -> None:
    """List the contexts; the current one is marked."""
    call = current_call(ctx)
    contexts = _load(call)
    rows = [
        {
            "current": "*" if name == contexts.current else "",
            "name": name,
            "bootstrap": context.bootstrap or None,
            "http": context.http or None,
            "login": _login(context),
            "tls": context.access.is_encrypted or context.http.startswith("https://"),
            "output": context.output.value,
        }
        for name, context in contexts.by_name.items()
    ]
    print_rows(rows, call.output)


@app.command()
def use_context(ctx: typer.Context, name: Name) -> None:
    """Make a context the current one."""
    call = current_call(ctx)
    contexts = _load(call)
    contexts.get(name)
    contexts.current = name
    _save(call, contexts)
    print(f"Using context {name}.")


@app.command()
def set_context(ctx: typer.Context, name: Name) -> None:
    """Store the addresses, the login and -o of this call under a name.

    The first context becomes the current one. One address is enough; commands request the other
    from the broker. A given address replaces both and the login, because the old ones may belong to
    another cluster. A user without a stored password types it for each command.
    """
    call = current_call(ctx)
    contexts = _load(call)
    context = contexts.by_name.get(name, Context())
    access = call.access_given.over(context.access)
    if call.bootstrap_given or call.http_given:
        access = call.access_given
        context = replace(context, bootstrap=call.bootstrap_given or "", http=call.http_given or "")
    output = call.output_given or context.output
    contexts.by_name[name] = replace(context, output=output, access=access)
    contexts.current = contexts.current or name
    _save(call, contexts)
    print(f"Context {name} is set.")


@app.command()
def test(ctx: typer.Context) -> None:
    """Connect over Kafka and HTTP, and show as whom."""
    call = current_call(ctx)
    from goqueue.cli.connecting import bare, connect, connect_http, http_address, kafka_address

    with connect(ctx) as client:
        nodes = client.cluster.nodes()
        cluster_id = client.cluster.cluster_id
    with connect_http(ctx) as api:
        found = api.users.whoami()
    access, http = call.access, http_address(ctx)
    print_item(
        {
            "cluster": cluster_id,
            "nodes": len(nodes),
            "context": call.named.context or None,
            "kafka": kafka_address(ctx),
            "http": bare(http),
            "tls": access.is_encrypted,
            "mechanism": None if (sasl := access.sasl()) is None else sasl.mechanism,
            "principal": found.principal,
        },
        call.output,
    )


@app.command()
def delete_context(ctx: typer.Context, name: Name) -> None:
    """Delete a context."""
    call = current_call(ctx)
    contexts = _load(call)
    contexts.get(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = ""
    _save(call, contexts)
    print(f"Context {name} is deleted.")


def _login(context: Context) -> str | None:
    return context.access.user or ("API key" if context.access.api_key else None)


def _load(call: Call) -> Contexts:
    return load_contexts(contexts_file(call.environ))


def _save(call: Call, contexts: Contexts) -> None:
    save_contexts(contexts_file(call.environ), contexts)
