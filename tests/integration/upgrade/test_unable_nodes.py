"""A node that cannot apply what its cluster has decided ends, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.waiting import eventually

# Python runs this when it starts: the node says that it supports more than it does.
UNABLE = """
from goqueue.broker.controller import metadata
from goqueue.model.support import LEVEL_MAX, LEVEL_MIN, Support
from goqueue.cluster.metadata import check_supported

def check(changes, support):
    check_supported(changes, Support(LEVEL_MIN, LEVEL_MAX - 1))

metadata.check_supported = check
"""


@pytest.mark.timeout(120)
def test_a_node_that_cannot_follow_its_cluster_ends_with_the_reason(tmp_path: Path) -> None:
    customised = tmp_path / "customised"
    customised.mkdir()
    (customised / "sitecustomize.py").write_text(UNABLE)
    cluster = Cluster(tmp_path)
    node = cluster.nodes[3]
    node.environ = {"PYTHONPATH": str(customised)}
    try:
        for one in cluster.nodes.values():
            one.launch()
        eventually(lambda: node.ended_with is not None, because="the node ends")
        assert node.ended_with == 1
        assert node.log_text.splitlines()[-1].endswith("upgrade this node.")
        for one in (cluster.nodes[1], cluster.nodes[2]):
            one.until_ready()
        node.environ = {}
        node.launch()
        node.until_ready()
    finally:
        cluster.close()
