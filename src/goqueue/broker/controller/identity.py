"""The identity of a data folder: the node and the cluster it belongs to."""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec

from goqueue.config import NodeSettings
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed_or_refuse, write_framed

_NODE_FILE = "meta/node"
_NODE_MAGIC = b"GQND"
_NODE_VERSION = 1


class _Node(msgspec.Struct, frozen=True):
    node_id: int
    cluster_id: str


def cluster_id_of(disk: Disk, settings: NodeSettings, *, new_id: Callable[[], bytes]) -> str:
    """Return the cluster id of this data folder; a new folder gets one."""
    known = read_framed_or_refuse(
        disk,
        _NODE_FILE,
        magic=_NODE_MAGIC,
        version=_NODE_VERSION,
        body=_Node,
        remedy="The id of the cluster is in it: restore the file, or remove it and give the id "
        "as the setting node.cluster_id.",
    )
    if known is not None:
        return known.cluster_id
    cluster_id = settings.cluster_id or _short(new_id())
    write_identity(disk, node_id=settings.id, cluster_id=cluster_id)
    return cluster_id


def write_identity(disk: Disk, *, node_id: int, cluster_id: str) -> None:
    """Record durably which node and cluster a data folder belongs to."""
    node = _Node(node_id, cluster_id)
    write_framed(disk, _NODE_FILE, magic=_NODE_MAGIC, version=_NODE_VERSION, body=node)


def _short(unique: bytes) -> str:
    """Encode sixteen bytes as 22 characters that are safe in a name."""
    return base64.urlsafe_b64encode(unique).decode().rstrip("=")
