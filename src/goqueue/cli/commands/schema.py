"""`goqueue schema`: register, show, check, configure and delete schemas."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from goqueue.cli.connecting import announce, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.output import OutputForm, print_item, print_rows
from goqueue.cli.payload_options import KINDS_BY_SUFFIX, read_schema
from goqueue.client.http import SchemaConfig, SchemaReference, SchemaVersion
from goqueue.client.http.requests.schemas import Kind, Level
from goqueue.model.errors import InvalidRequest, SchemaRefusal, SchemaRefused

app = typer.Typer(no_args_is_help=True, help="Register, check and delete message schemas.")


class KindName(enum.StrEnum):
    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class LevelName(enum.StrEnum):
    NONE = "none"
    BACKWARD = "backward"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD = "forward"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL = "full"
    FULL_TRANSITIVE = "full_transitive"


_KINDS: dict[KindName, Kind] = {
    KindName.AVRO: "AVRO",
    KindName.JSON: "JSON",
    KindName.PROTOBUF: "PROTOBUF",
}
_LEVELS: dict[LevelName, Level] = {
    LevelName.NONE: "NONE",
    LevelName.BACKWARD: "BACKWARD",
    LevelName.BACKWARD_TRANSITIVE: "BACKWARD_TRANSITIVE",
    LevelName.FORWARD: "FORWARD",
    LevelName.FORWARD_TRANSITIVE: "FORWARD_TRANSITIVE",
    LevelName.FULL: "FULL",
    LevelName.FULL_TRANSITIVE: "FULL_TRANSITIVE",
}

Subject = Annotated[str, typer.Argument(help="Name of the subject, such as orders-value.")]
File = Annotated[str, typer.Argument(help="File with the schema; - reads standard input.")]
KindOption = Annotated[
    KindName | None,
    typer.Option(
        "--type", "-t", help="Type of the schema; default by .avsc, .json or .proto, else avro."
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        "-r",
        metavar="NAME=SUBJECT:VERSION",
        help="Schema that this one refers to by NAME; may be repeated.",
    ),
]
Version = Annotated[str, typer.Option("--version", "-v", help="A number, or latest.")]


@app.command()
def register(
    ctx: typer.Context,
    subject: Subject,
    file: File,
    kind: KindOption = None,
    reference: References = None,
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize",
            help="Normalize the schema first, so that insignificant order does not matter.",
        ),
    ] = False,
) -> None:
    """Register a schema as a new version of a subject, unless it is registered already."""
    with connect_http(ctx) as client:
        made = client.schemas.register(
            subject,
            read_schema(file),
            kind=_kind(kind, file),
            references=_references(reference),
            normalize=normalize,
        )
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(f"The schema is version {made.version} of subject {subject}; its id is {made.id}.")
    else:
        print_item(_row(made), form)


@app.command()
def get(
    ctx: typer.Context,
    subject: Annotated[str | None, typer.Argument(help="Name of the subject.")] = None,
    version: Version = "latest",
    schema_id: Annotated[
        int | None, typer.Option("--id", min=0, help="Id of the schema, instead of a subject.")
    ] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Show deleted versions too.")] = False,
) -> None:
    """Print a schema; with -o json or yaml, its metadata too."""
    if (subject is None) == (schema_id is None):
        raise InvalidRequest("Give either a subject or --id.")
    with connect_http(ctx) as client:
        if schema_id is not None:
            found = client.schemas.get_by_id(schema_id)
        else:
            found = client.schemas.get(str(subject), version, deleted=deleted)
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(found.text)
    else:
        print_item({**_row(found), "schema": found.text, "references": _shown(found)}, form)


@app.command("list")
def list_schemas(
    ctx: typer.Context,
    prefix: Annotated[str, typer.Option(help="Only subjects with this prefix.")] = "",
    latest: Annotated[bool, typer.Option("--latest", help="Only the latest versions.")] = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="List deleted versions too.")] = False,
) -> None:
    """List the versions of all subjects."""
    with connect_http(ctx) as client:
        found = list(client.schemas.list_all(prefix=prefix, latest_only=latest, deleted=deleted))
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print("There are no schemas yet; add one with `goqueue schema register SUBJECT FILE`.")
    rows = [_row(one) for one in found]
    print_rows([{**row, "deleted": one.is_deleted} for row, one in zip(rows, found, strict=True)]
               if deleted else rows, form)  # fmt: skip


@app.command()
def check(
    ctx: typer.Context,
    subject: Subject,
    file: File,
    kind: KindOption = None,
    reference: References = None,
    version: Annotated[
        str | None,
        typer.Option(
            "--version", "-v", help="Check against this version; default as at registration."
        ),
    ] = None,
) -> None:
    """Check whether a schema is compatible with a subject; the exit code is 1 if not."""
    with connect_http(ctx) as client:
        messages = client.schemas.check(
            subject,
            read_schema(file),
            kind=_kind(kind, file),
            references=_references(reference),
            version=version,
        )
    form = current_call(ctx).output
    if form is not OutputForm.TABLE:
        print_item({"subject": subject, "compatible": not messages, "messages": messages}, form)
    elif not messages:
        print(f"The schema is compatible with subject {subject}.")
    if messages:
        detail = "\n".join([f"The schema is not compatible with subject {subject}:", *messages])
        raise SchemaRefused(SchemaRefusal.INCOMPATIBLE, detail)


@app.command()
def config(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(help="Name of the subject; default the whole registry.")
    ] = None,
    level: Annotated[
        LevelName | None, typer.Option(help="Compatibility required between versions.")
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option(help="Whether to normalize schemas before they are compared.")
    ] = None,
    unset: Annotated[
        bool, typer.Option("--unset", help="Remove its settings, so that the defaults apply.")
    ] = False,
) -> None:
    """Show or change the settings of a subject or of the registry."""
    if unset and (level is not None or normalize is not None):
        raise InvalidRequest("Give either --unset or new settings, not both.")
    with connect_http(ctx) as client:
        if unset:
            client.schemas.unset_config(subject)
        elif level is not None or normalize is not None:
            client.schemas.configure(
                subject, level=None if level is None else _LEVELS[level], normalize=normalize
            )
        found = client.schemas.config(subject)
    print_item(_config_row(subject, found), current_call(ctx).output)


@app.command()
def delete(
    ctx: typer.Context,
    subject: Subject,
    version: Annotated[
        str | None, typer.Option("--version", "-v", help="Only this version: a number, or latest.")
    ] = None,
    permanent: Annotated[
        bool,
        typer.Option(
            "--permanent", help="Remove permanently; the versions must be deleted already."
        ),
    ] = False,
) -> None:
    """Delete a subject or one version of it; its ids remain readable until --permanent."""
    with connect_http(ctx) as client:
        announce(ctx, client)
        if version is None:
            numbers = client.schemas.delete(subject, permanent=permanent)
        else:
            numbers = [client.schemas.delete_version(subject, version, permanent=permanent)]
    form = current_call(ctx).output
    if form is not OutputForm.TABLE:
        print_item({"subject": subject, "versions": numbers, "permanent": permanent}, form)
        return
    shown = ", ".join(map(str, numbers)) or "none"
    print(f"Subject {subject}, {'removed' if permanent else 'deleted'} versions: {shown}.")


def _kind(given: KindName | None, file: str) -> Kind:
    if given is not None:
        return _KINDS[given]
    return KINDS_BY_SUFFIX.get(Path(file).suffix.lower(), "AVRO")


def _references(texts: list[str] | None) -> list[SchemaReference]:
    references = []
    for text in texts or []:
        name, equals, target = text.partition("=")
        subject, colon, version = target.rpartition(":")
        if not (equals and colon and name and subject and version.isdecimal()):
            raise InvalidRequest(f"--reference {text} is not NAME=SUBJECT:VERSION.")
        references.append(SchemaReference(name, subject, int(version)))
    return references


def _row(one: SchemaVersion) -> dict[str, object]:
    about = {"subject": one.subject, "version": one.version} if one.subject else {}
    return {**about, "id": one.id, "type": one.kind.lower()}


def _shown(one: SchemaVersion) -> list[dict[str, object]]:
    return [
        {"name": each.name, "subject": each.subject, "version": each.version}
        for each in one.references
    ]


def _config_row(subject: str | None, found: SchemaConfig) -> dict[str, object]:
    return {
        "subject": subject or "(all)",
        "level": None if found.level is None else found.level.lower(),
        "normalize": bool(found.normalize),
    }
