"""What is not restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.backups.folder import Folder
from goqueue.backups.manifest import Manifest, MetadataEntry
from goqueue.model.errors import UnsupportedVersion
from goqueue.model.support import LEVEL_MAX
from goqueue.runtime.restoring import restore


def test_a_backup_of_a_later_level_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    later = Manifest(
        id="1",
        cluster_id="c",
        broker_version="9.1",
        feature_level=LEVEL_MAX + 1,
        cut_ms=1,
        finished_ms=2,
        metadata=MetadataEntry(size=0, sha256=""),
        topics=(),
    )
    data_dir = tmp_path / "data"
    with pytest.raises(UnsupportedVersion, match=r"restore it with GoQueue 9\.1 or later"):
        restore(Folder(tmp_path / "backups"), later, data_dir)
    assert not data_dir.exists()
