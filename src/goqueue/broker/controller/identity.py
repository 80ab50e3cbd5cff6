"""The identity of a data folder: the node and the cluster it belongs to."""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec

from goqueue.config import NodeSettings
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed

_NODE_FILE = "meta/node"
_NODE_MAGIC = b"GQND"
_NODE_VERSION = 1


class _Node(msgspec.Struct, frozen=True):
    node_id: int
    cluster_id: str


def cluster_id_of(disk: Disk, settings: NodeSettings, *, new_id: Callable[[], bytes]) -> str:
    """Return the cluster id of this data folder; a new folder gets one."""
    known = read_framed(disk, _NODE_FILE, magic=_NODE_MAGIC, version=_NODE_VERSION, body=_Node)
    if known is not None:
        return known.cluster_id
    cluster_id = settings.cluster_id or _short(new_id())
    node = _Node(settings.id, cluster_id)
    write_framed(disk, _NODE_FILE, magic=_NODE_MAGIC, version=_NODE_VERSION, body=node)
    return cluster_id


def _short(unique: bytes) -> str:
    """Encode sixteen bytes as 22 characters that are safe in a name."""
    return base64.urlsafe_b64encode(unique).decode().rstrip("=")
