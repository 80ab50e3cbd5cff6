"""`goqueue serve`: gather the settings and run a node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from goqueue.config import SETTINGS, load, render

app = typer.Typer()


# Values stay text here: `load` checks them together with those of the file and the environment,
# so that all problems are told at once.
@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option(help="Settings file, YAML; else GOQUEUE_CONFIG.")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Where the data is kept.")] = None,
    listen_kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where Kafka clients connect.")
    ] = None,
    advertise_kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The address that clients are told.")
    ] = None,
    listen_http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where HTTP clients connect.")
    ] = None,
    listen_registry: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where schema registry clients connect.")
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="ID@HOST:PORT,...",
            help="The first voters of a cluster, by node id and internal address.",
        ),
    ] = None,
    listen_internal: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the other nodes connect.")
    ] = None,
    advertise_internal: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The address that other nodes are told.")
    ] = None,
    allow_unauthenticated: Annotated[
        bool, typer.Option("--allow-unauthenticated", help="Let anybody who can connect use it.")
    ] = False,
    node_id: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Id of this broker.")
    ] = None,
    fsync: Annotated[
        str | None,
        typer.Option(metavar="every|interval|none", help="What an acknowledgement promises."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="debug|info|warning|error", help="How much is logged.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Any setting; may be repeated."),
    ] = None,
    shards: Annotated[
        int,
        typer.Option(
            metavar="NUMBER",
            help="Run so many nodes as processes of this machine, to use more of its cores.",
        ),
    ] = 0,
    ready_file: Annotated[
        Path | None,
        typer.Option(help="Written with the bound addresses, as JSON, once the node serves."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the settings and their sources, and exit.")
    ] = False,
) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    flags = {
        "--data-dir": data_dir,
        "--listen-kafka": listen_kafka,
        "--advertise-kafka": advertise_kafka,
        "--listen-http": listen_http,
        "--listen-registry": listen_registry,
        "--peers": peers,
        "--listen-internal": listen_internal,
        "--advertise-internal": advertise_internal,
        "--allow-unauthenticated": "true" if allow_unauthenticated else None,
        "--node-id": node_id,
        "--fsync": fsync,
        "--log-level": log_level,
    }
    overrides = {flag: text for flag, text in flags.items() if text is not None}
    for assignment in set_ or []:
        path, _, text = assignment.partition("=")
        overrides[path] = text
    settings = load(file=config, environ=os.environ, overrides=overrides)
    if print_config:
        print(render(settings), end="")
        return

    if shards:
        from goqueue.runtime.shards import run_shards

        code = run_shards(settings, shards, _arguments(config, overrides), ready_file)
        raise typer.Exit(code)

    from goqueue.runtime.serve import run

    run(settings, ready_file=ready_file)


def _arguments(config: Path | None, overrides: dict[str, str]) -> list[str]:
    """The same words again, for a process that is to have the same settings."""
    words = [] if config is None else ["--config", str(config)]
    for name, text in overrides.items():
        path = next((path for path, one in SETTINGS.items() if one.about.flag == name), name)
        words += ["--set", f"{path}={text}"]
    return words
