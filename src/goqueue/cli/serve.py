"""`goqueue serve`: gather the settings and run a node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from goqueue.config import SETTINGS, load, render

app = typer.Typer()

Config: TypeAlias = Annotated[
    Path | None, typer.Option(help="Settings file, YAML; else GOQUEUE_CONFIG.")
]
Assignments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Any setting; may be repeated."),
]
Shards: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="NUMBER",
        help="Run so many nodes as processes of this machine, to use more of its cores.",
    ),
]
ReadyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Written with the bound addresses, as JSON, once the node serves."),
]
PrintConfig: TypeAlias = Annotated[
    bool, typer.Option("--print-config", help="Print the settings and their sources, and exit.")
]

# Values stay text here: `load` checks them together with those of the file and the environment,
# so that all problems are told at once.
DataDir: TypeAlias = Annotated[str | None, typer.Option(help="Where the data is kept.")]
ListenKafka: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where Kafka clients connect.")
]
AdvertiseKafka: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The address that clients are told.")
]
ListenHttp: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where HTTP clients connect.")
]
AdvertiseHttp: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where clients find the HTTP API.")
]
ListenRegistry: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where schema registry clients connect.")
]
ListenSqs: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where clients of SQS connect.")
]
Peers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ID@HOST:PORT,...",
        help="The first voters of a cluster, by node id and internal address.",
    ),
]
Join: TypeAlias = Annotated[
    bool, typer.Option("--join", help="Join the cluster that exists; never found a new one.")
]
SecretFile: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The secret that the nodes of a cluster share."),
]
ListenInternal: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where the other nodes connect.")
]
AdvertiseInternal: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The address that other nodes are told.")
]
AllowUnauthenticated: TypeAlias = Annotated[
    bool, typer.Option("--allow-unauthenticated", help="Let anybody who can connect use it.")
]
NodeId: TypeAlias = Annotated[str | None, typer.Option(metavar="NUMBER", help="Id of this broker.")]
Fsync: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="every|interval|none", help="What an acknowledgement promises."),
]
LogLevel: TypeAlias = Annotated[
    str | None, typer.Option(metavar="debug|info|warning|error", help="How much is logged.")
]


@app.command()
def serve(
    config: Config = None,
    data_dir: DataDir = None,
    listen_kafka: ListenKafka = None,
    advertise_kafka: AdvertiseKafka = None,
    listen_http: ListenHttp = None,
    advertise_http: AdvertiseHttp = None,
    listen_registry: ListenRegistry = None,
    listen_sqs: ListenSqs = None,
    peers: Peers = None,
    join: Join = False,
    secret_file: SecretFile = None,
    listen_internal: ListenInternal = None,
    advertise_internal: AdvertiseInternal = None,
    allow_unauthenticated: AllowUnauthenticated = False,
    node_id: NodeId = None,
    fsync: Fsync = None,
    log_level: LogLevel = None,
    set_: Assignments = None,
    shards: Shards = 0,
    ready_file: ReadyFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    flags = {
        "--data-dir": data_dir,
        "--listen-kafka": listen_kafka,
        "--advertise-kafka": advertise_kafka,
        "--listen-http": listen_http,
        "--advertise-http": advertise_http,
        "--listen-registry": listen_registry,
        "--listen-sqs": listen_sqs,
        "--peers": peers,
        "--join": "true" if join else None,
        "--secret-file": secret_file,
        "--listen-internal": listen_internal,
        "--advertise-internal": advertise_internal,
        "--allow-unauthenticated": "true" if allow_unauthenticated else None,
        "--node-id": node_id,
        "--fsync": fsync,
        "--log-level": log_level,
    }
    overrides = _overrides(flags, set_ or [])
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


def _overrides(flags: dict[str, str | None], assignments: list[str]) -> dict[str, str]:
    """What was typed, by flag or by the path of the setting."""
    overrides = {flag: text for flag, text in flags.items() if text is not None}
    for assignment in assignments:
        path, _, text = assignment.partition("=")
        overrides[path] = text
    return overrides


def _arguments(config: Path | None, overrides: dict[str, str]) -> list[str]:
    """The same words again, for a process that is to have the same settings."""
    words = [] if config is None else ["--config", str(config)]
    for name, text in overrides.items():
        path = next((path for path, one in SETTINGS.items() if one.about.flag == name), name)
        words += ["--set", f"{path}={text}"]
    return words
