"""`goqueue serve`: read the settings and run a node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from goqueue.cli.extras import need_server
from goqueue.config import SETTINGS, load, render

app = typer.Typer()

Config: TypeAlias = Annotated[
    Path | None, typer.Option(help="Settings file, YAML; default GOQUEUE_CONFIG.")
]
Assignments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Any setting; may be repeated."),
]
Shards: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="NUMBER",
        help="Run this many nodes as processes of this machine, to use more of its cores.",
    ),
]
ReadyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="File to write when the node is ready, with the bound addresses as JSON."),
]
PrintConfig: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--print-config", help="Print the effective settings and their sources, and exit."
    ),
]

# Values remain text here: `load` checks them together with the file and the environment, and
# reports all problems together.
DataDir: TypeAlias = Annotated[str | None, typer.Option(help="Folder of the data.")]
_LISTENERS = "[NAME=][SECURITY://]HOST:PORT,..."
_ADVERTISED = "[NAME=]HOST:PORT,..."
ListenKafka: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar=_LISTENERS,
        help="Kafka listeners; the security is plaintext, ssl, sasl_plaintext or sasl_ssl.",
    ),
]
AdvertiseKafka: TypeAlias = Annotated[
    str | None, typer.Option(metavar=_ADVERTISED, help="Addresses advertised to Kafka clients.")
]
ListenHttp: TypeAlias = Annotated[
    str | None, typer.Option(metavar=_LISTENERS, help="HTTP listeners.")
]
AdvertiseHttp: TypeAlias = Annotated[
    str | None, typer.Option(metavar=_ADVERTISED, help="Addresses advertised to HTTP clients.")
]
ListenRegistry: TypeAlias = Annotated[
    str | None, typer.Option(metavar=_LISTENERS, help="Schema registry listeners.")
]
ListenSqs: TypeAlias = Annotated[
    str | None, typer.Option(metavar=_LISTENERS, help="SQS listeners.")
]
ListenGrpc: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar=_LISTENERS, help="gRPC listeners, on port 9000 if it is left out; none by default."
    ),
]
Peers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ID@HOST:PORT,...",
        help="Initial voters of a new cluster: node ids and internal addresses.",
    ),
]
Join: TypeAlias = Annotated[
    bool, typer.Option("--join", help="Join an existing cluster; never form a new one.")
]
SecretFile: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="File with the secret that the nodes of a cluster share."),
]
ListenInternal: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Address of the listener for other nodes.")
]
AdvertiseInternal: TypeAlias = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Address advertised to other nodes.")
]
AllowUnauthenticated: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-unauthenticated",
        help="Allow listeners on other than loopback addresses without authentication.",
    ),
]
InitialAdmin: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME:PASSWORD",
        help="The first user, created when there are no users. Better set in the environment.",
    ),
]
NodeId: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Id of this node, unique in its cluster.")
]
Fsync: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="every|interval|none",
        help="When writes are synced to disk: before each acknowledgement, at intervals, or never.",
    ),
]
LogLevel: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="debug|info|warning|error", help="Least severe messages to log."),
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
    listen_grpc: ListenGrpc = None,
    peers: Peers = None,
    join: Join = False,
    secret_file: SecretFile = None,
    listen_internal: ListenInternal = None,
    advertise_internal: AdvertiseInternal = None,
    allow_unauthenticated: AllowUnauthenticated = False,
    initial_admin: InitialAdmin = None,
    node_id: NodeId = None,
    fsync: Fsync = None,
    log_level: LogLevel = None,
    set_: Assignments = None,
    shards: Shards = 0,
    ready_file: ReadyFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Run a node until SIGTERM or SIGINT."""
    need_server()
    flags = {
        "--data-dir": data_dir,
        "--listen-kafka": listen_kafka,
        "--advertise-kafka": advertise_kafka,
        "--listen-http": listen_http,
        "--advertise-http": advertise_http,
        "--listen-registry": listen_registry,
        "--listen-sqs": listen_sqs,
        "--listen-grpc": listen_grpc,
        "--peers": peers,
        "--join": "true" if join else None,
        "--secret-file": secret_file,
        "--listen-internal": listen_internal,
        "--advertise-internal": advertise_internal,
        "--allow-unauthenticated": "true" if allow_unauthenticated else None,
        "--initial-admin": initial_admin,
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
    """The values given on the command line, by flag or by path of the setting."""
    overrides = {flag: text for flag, text in flags.items() if text is not None}
    for assignment in assignments:
        path, _, text = assignment.partition("=")
        overrides[path] = text
    return overrides


def _arguments(config: Path | None, overrides: dict[str, str]) -> list[str]:
    """The same options as arguments, for a process with the same settings."""
    words = [] if config is None else ["--config", str(config)]
    for name, text in overrides.items():
        path = next((path for path, one in SETTINGS.items() if one.about.flag == name), name)
        words += ["--set", f"{path}={text}"]
    return words
