"""`goqueue backup`: create, list, verify and restore backups in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from goqueue.backups.creating import Cut, Piece, Progress, Span, TopicCut, create
from goqueue.backups.folder import Folder
from goqueue.backups.manifest import Manifest
from goqueue.backups.store import Store
from goqueue.backups.verifying import verify
from goqueue.cli.connecting import connect_http
from goqueue.cli.context import current_call
from goqueue.cli.moments import show_time
from goqueue.cli.output import Row, print_item, print_rows, show_size
from goqueue.client.http import Client
from goqueue.model.errors import GoQueueError, InvalidRequest

app = typer.Typer(
    no_args_is_help=True, help="Back up a running cluster to a folder, and restore it."
)

_FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the backups.")]
_NEWEST = "the newest one"
_REPAIR = (
    "Backups that need these files cannot be restored. Later backups use the same files, so remove "
    "damaged and truncated ones: the next backup copies what it needs again from the cluster."
)
_COLUMNS = ("cluster", "cut", "topics", "partitions", "size", "version", "level")


@app.command("create")
def create_backup(
    ctx: typer.Context,
    folder: _FolderArgument,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Leave out the messages of other topics; repeatable."),
    ] = None,
) -> None:
    """Back up the cluster while it runs; only what the folder lacks is copied."""
    with connect_http(ctx) as client:
        done = Progress()

        def note(progress: Progress) -> None:
            nonlocal done
            done = progress

        manifest = create(
            Folder(folder),
            _Broker(client),
            version=client.node.version().version,
            topics=topic or None,
            progress=note,
        )
    row = {
        **_row(manifest),
        "copied": show_size(done.copied_bytes),
        "reused": show_size(done.reused_bytes),
    }
    print_item(row, current_call(ctx).output)


@app.command("list")
def list_backups(ctx: typer.Context, folder: _FolderArgument) -> None:
    """List the backups in a folder, the oldest first."""
    found = Folder(folder)
    print_rows([_listed(found, one) for one in found.ids()], current_call(ctx).output)


@app.command("verify")
def verify_backups(
    ctx: typer.Context,
    folder: _FolderArgument,
    backup: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this backup.", show_default="all")
    ] = None,
) -> None:
    """Read every file of the backups, and list those that are missing, truncated or damaged."""
    found = Folder(folder)
    ids = found.ids() if backup is None else [backup]
    if not ids:
        raise InvalidRequest(f"There are no backups in {folder}.")
    findings = list(verify(found, ids))
    rows = [{"backup": one.backup, "file": one.name, "fault": str(one.fault)} for one in findings]
    print_rows(rows, current_call(ctx).output)
    if findings:
        typer.echo(_REPAIR, err=True)
        raise typer.Exit(1)


@app.command("restore")
def restore_backup(
    ctx: typer.Context,
    folder: _FolderArgument,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Empty data folder of the new node.")
    ],
    backup: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The backup.", show_default=_NEWEST)
    ] = None,
    same_cluster: Annotated[
        bool,
        typer.Option(
            "--same-cluster", help="Keep the id of the cluster, which must not run any more."
        ),
    ] = False,
    node_id: Annotated[
        int, typer.Option("--node-id", min=0, help="Id of the node, with --same-cluster.")
    ] = 0,
) -> None:
    """Write a backup into the empty data folder of a node that is not running yet."""
    from goqueue.runtime.restoring import restore

    found = Folder(folder)
    ids = found.ids()
    if backup is None and not ids:
        raise InvalidRequest(f"There are no backups in {folder}.")
    manifest = found.load(ids[-1] if backup is None else backup)
    cluster_id = manifest.cluster_id if same_cluster else ""
    restore(found, manifest, data_dir, node_id=node_id, cluster_id=cluster_id)
    print_item({**_row(manifest), "data_dir": str(data_dir)}, current_call(ctx).output)


def _listed(store: Store, backup_id: str) -> Row:
    """Return the row of a backup; one that cannot be read must not hide the others."""
    try:
        return {**_row(store.load(backup_id)), "fault": ""}
    except GoQueueError as error:
        return {"id": backup_id, **dict.fromkeys(_COLUMNS, ""), "fault": str(error)}


def _row(manifest: Manifest) -> Row:
    chosen = manifest.chosen_topics
    return {
        "id": manifest.id,
        "cluster": manifest.cluster_id,
        "cut": show_time(manifest.cut_ms),
        "topics": "all" if chosen is None else ", ".join(chosen),
        "partitions": sum(len(one.partitions) for one in manifest.topics),
        "size": show_size(manifest.size),
        "version": manifest.broker_version,
        "level": manifest.feature_level,
    }


class _Broker:
    """A cluster as the source of a backup, over HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def cut(self, topics: Sequence[str] | None) -> Cut:
        taken = self._client.backups.cut(topics=topics)
        return Cut(
            taken.cluster_id,
            taken.cut_ms,
            taken.metadata,
            [
                TopicCut(one.name, one.id, [Span(span.start, span.end) for span in one.partitions])
                for one in taken.topics
            ],
            taken.feature_level,
        )

    def read(self, topic_id: str, number: int, *, offset: int, until: int) -> Piece:
        return Piece(*self._client.backups.read(topic_id, number, offset=offset, until=until))
