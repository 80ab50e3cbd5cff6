"""Real nodes that encrypt what they say, with certificates made as the manual says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority, Files

from .cluster import CLUSTER_SETTINGS, Cluster, ClusterBroker
from .ports import quiet_port
from .test_cluster import Writer, check, create
from .waiting import eventually

pytestmark = pytest.mark.timeout(240)

MANUAL = Path(__file__).parents[2] / "docs" / "cluster.md"


def make_certificates(folder: Path) -> dict[int, Files]:
    """Those of three nodes, by the very commands of the manual."""
    section = MANUAL.read_text().partition("## Encryption between nodes")[2]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    # All of 127.0.0.0/8 is this machine, so that every node has a host of its own here too.
    script = found[1].replace("10.0.0.", "127.0.0.")
    subprocess.run(["sh", "-eu", "-c", script], cwd=folder, check=True, capture_output=True)
    authority = folder / "authority.pem"
    return {
        number: Files(folder / f"127.0.0.{number}.pem", folder / f"127.0.0.{number}.key", authority)
        for number in (1, 2, 3)
    }


class SecureBroker(ClusterBroker):
    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        at = command.index("--listen-internal") + 1
        command[at] = command[at].replace("127.0.0.1", f"127.0.0.{self.node_id}")
        return command

    def use(self, files: Files) -> None:
        self.settings.update(files.settings)


class SecureCluster(Cluster):
    """Nodes 1, 2 and 3 at 127.0.0.1, 127.0.0.2 and 127.0.0.3."""

    nodes: dict[int, SecureBroker]  # type: ignore[assignment]

    def __init__(self, directory: Path) -> None:
        port = quiet_port()
        certificates = directory / "certificates"
        certificates.mkdir()
        self.files = make_certificates(certificates)
        peers = ",".join(f"{number}@127.0.0.{number}:{port}" for number in (1, 2, 3))
        self.nodes = {}
        for number in (1, 2, 3):
            home = directory / f"node-{number}"
            home.mkdir()
            # Certificates are enough.
            settings = {**CLUSTER_SETTINGS, "cluster.secret": ""}
            node = SecureBroker(home, settings, node_id=number, internal_port=port, peers=peers)
            node.use(self.files[number])
            self.nodes[number] = node


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecureCluster]:
    cluster = SecureCluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def test_nodes_with_certificates_form_a_cluster_that_nobody_else_gets_into(
    cluster: SecureCluster, tmp_path: Path
) -> None:
    create(cluster, "orders")
    writer = Writer(cluster, "orders")
    writer.until_acked(200)
    third = cluster.nodes[3]
    third.kill()
    writer.until_acked(200)
    # A stranger in its place: the right host, and the wrong authority.
    foreign = Authority(tmp_path / "foreign", "foreign").sign("node-3", "127.0.0.3")
    third.use(foreign._replace(authorities=cluster.files[3].authorities))
    third.launch()
    eventually(
        lambda: "turned away: its certificate is refused" in cluster.nodes[1].log_text,
        because="the others say why",
    )
    writer.until_acked(200)
    assert not (third.directory / "ready.json").exists()
    third.kill()
    # With new certificates all of them go on, and no other node has to be restarted.
    renewed = tmp_path / "renewed"
    renewed.mkdir()
    new = make_certificates(renewed)
    both = cluster.files[1].authorities.read_bytes() + new[1].authorities.read_bytes()
    cluster.files[1].authorities.write_bytes(both)
    for number, files in new.items():
        files.key.replace(cluster.files[number].key)
        files.certificate.replace(cluster.files[number].certificate)
    third.use(cluster.files[3])
    third.start()
    cluster.until_in_sync("orders")
    writer.until_acked(200)
    writer.finish()
    assert writer.errors == []
    check(cluster, "orders", writer)
    told = [node.log_text.count("turned away: its certificate") for node in cluster.nodes.values()]
    assert told[0] == told[1] == 1, "once, and not each time it tries"
    assert "the certificate has changed" in cluster.nodes[1].log_text
