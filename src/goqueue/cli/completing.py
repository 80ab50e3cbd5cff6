"""Shell completion of names that a broker or the file of contexts knows: topics, groups, contexts.

The shell runs `goqueue` each time somebody presses the tabulator. Whatever goes wrong then, such as
a broker that is away, means that there is nothing to offer: an error would break the line that the
user is typing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from typing import Any

import typer

from goqueue.cli.context import contexts_file, current_call, load_contexts
from goqueue.model.errors import GoQueueError

NAMES_MAX = 1000  # of one list; a longer one helps nobody
LOOKUP_MS_MAX = 3_000

Names = Callable[[typer.Context, str], list[str]]


def topics(ctx: typer.Context, prefix: str) -> list[str]:
    """Return the topics whose names begin with a prefix."""
    return _asked(ctx, lambda client: [one.name for one in client.topics.list_all(prefix=prefix)])


def groups(ctx: typer.Context, prefix: str) -> list[str]:
    """Return the groups of all kinds whose names begin with a prefix."""
    found = _asked(ctx, lambda client: [one.name for one in client.groups.list_all(prefix=prefix)])
    return list(dict.fromkeys(found))  # a name may be that of two kinds


def contexts(ctx: typer.Context, prefix: str) -> list[str]:
    """Return the contexts whose names begin with a prefix."""
    try:
        known = load_contexts(contexts_file(current_call(ctx).environ))
    except GoQueueError:
        return []
    return [name for name in known.by_name if name.startswith(prefix)]


# By the name of an argument or an option, which has one meaning in all commands but `config`.
BY_PARAMETER: dict[str, Names] = {
    "topic": topics,
    "topics": topics,
    "source": topics,
    "dead_letter_topic": topics,
    "group": groups,
    "groups": groups,
    "context": contexts,
}
BY_PARAMETER_OF_CONFIG: dict[str, Names] = {"context": contexts, "name": contexts}


def add_completion(command: Any, by_parameter: dict[str, Names]) -> None:
    """Let a command and all its sub-commands complete the names of these parameters."""
    for parameter in command.params:
        names = by_parameter.get(parameter.name)
        if names is not None:
            # What `autocompletion=` of typer sets, for parameters that exist already.
            parameter._custom_shell_complete = _completer(names)
    for below in getattr(command, "commands", {}).values():
        add_completion(below, by_parameter)


def _completer(names: Names) -> Callable[[Any, Any, str], list[Any]]:
    def complete(ctx: Any, _parameter: Any, incomplete: str) -> list[Any]:
        from typer._click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in names(ctx, incomplete)[:NAMES_MAX]]

    return complete


def _asked(ctx: typer.Context, names: Callable[[Any], list[str]]) -> list[str]:
    from goqueue.cli.connecting import http_address, http_client
    from goqueue.client.http import HttpSettings, RetrySettings

    settings = HttpSettings(
        connect_ms_max=LOOKUP_MS_MAX,
        answer_ms_max=LOOKUP_MS_MAX,
        retry=RetrySettings(retries_max=0),
    )
    typed, sys.stdin = sys.stdin, StringIO()  # so that no password is asked for
    try:
        address, access = http_address(ctx), current_call(ctx).access
        with http_client(address, access, settings) as client:
            return names(client)
    except GoQueueError:
        return []
    finally:
        sys.stdin = typed
