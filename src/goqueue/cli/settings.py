"""`goqueue config`: the brokers this user works with, as named contexts."""

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

app = typer.Typer(no_args_is_help=True, help="Keep named brokers and choose among them.")

Name = Annotated[str, typer.Argument(help="Name of the context.")]


@app.command()
def view(ctx: typer.Context) -> None:
    """Print the file of contexts."""
    print(show_contexts(_load(current_call(ctx))), end="")


@app.command()
def get_contexts(ctx: typer.Context) -> None:
    """List the contexts; the one in use is marked."""
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
    """Use a context from now on."""
    call = current_call(ctx)
    contexts = _load(call)
    contexts.get(name)
    contexts.current = name
    _save(call, contexts)
    print(f"Using context {name}.")


@app.command()
def set_context(ctx: typer.Context, name: Name) -> None:
    """Remember -b, --http and -o of this call under a name; the first one is used at once.

    One address is enough: the broker is asked for the other. An address that is given replaces
    both, because the old one may be of another cluster.
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
    """Forget a context."""
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
