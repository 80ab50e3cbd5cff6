"""`goqueue config`: named contexts, each with the addresses of a broker."""

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
from goqueue.cli.output import print_rows

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
    """Store -b, --http and -o of this call under a name; the first context becomes the current one.

    One address is enough; commands request the other from the broker. A given address replaces
    both, because the old ones may belong to another cluster.
    """
    call = current_call(ctx)
    contexts = _load(call)
    context = contexts.by_name.get(name, Context())
    if call.bootstrap_given or call.http_given:
        context = replace(context, bootstrap=call.bootstrap_given or "", http=call.http_given or "")
    contexts.by_name[name] = replace(context, output=call.output_given or context.output)
    contexts.current = contexts.current or name
    _save(call, contexts)
    print(f"Context {name} is set.")


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


def _load(call: Call) -> Contexts:
    return load_contexts(contexts_file(call.environ))


def _save(call: Call, contexts: Contexts) -> None:
    save_contexts(contexts_file(call.environ), contexts)
