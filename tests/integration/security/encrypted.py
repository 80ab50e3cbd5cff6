"""Nodes all of whose listeners require TLS and credentials."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.certificates import Authority, Files
from tests.integration.cluster import Cluster, ClusterBroker
from tests.integration.process import Broker

ADMIN, ADMIN_PASSWORD = "admin", "planted-Admin-passw0rd"
LISTENERS = ("--listen-kafka", "--listen-http", "--listen-registry", "--listen-sqs")


class _Listeners(Broker):
    """`sasl_ssl` everywhere."""

    scheme = "https"

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        for flag in LISTENERS:
            at = command.index(flag) + 1
            command[at] = f"sasl_ssl://{command[at]}"
        return command


class _ClusterListeners(_Listeners, ClusterBroker):
    """The same on a node of a cluster."""


class _Installation:
    """What one encrypted node and several have in common: a certificate, users, a command line."""

    directory: Path
    authority: Authority
    files: Files

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    @property
    def ca_file(self) -> str:
        return str(self.files.authorities)

    def new_certificate(self) -> Files:
        """Sign another certificate for all nodes, in the place of the one before."""
        return self.authority.sign("node", "127.0.0.1", "localhost")

    def _settings(self) -> dict[str, object]:
        return {
            "security.initial_admin": f"{ADMIN}:{ADMIN_PASSWORD}",
            "security.super_users": "User:ann",
            "security.tls_certificate": self.files.certificate,
            "security.tls_key": self.files.key,
            "groups.initial_rebalance_delay_ms": 0,
        }

    def run(
        self, *words: str, stdin: str = "", code: int = 0, **environment: str
    ) -> tuple[str, str]:
        """What `goqueue` prints and says, for the administrator if nobody else is named."""
        login = {"GOQUEUE_USER": ADMIN, "GOQUEUE_PASSWORD": ADMIN_PASSWORD}
        environ = {
            **{name: text for name, text in os.environ.items() if "GOQUEUE" not in name},
            "GOQUEUE_BOOTSTRAP": self.bootstrap,
            "GOQUEUE_CLI_CONFIG": str(self.directory / "contexts.yaml"),
            "GOQUEUE_CA_FILE": self.ca_file,
            "GOQUEUE_TLS": "true",
            **(login if "GOQUEUE_API_KEY" not in environment else {}),
            **environment,
        }
        done = subprocess.run(
            [sys.executable, "-m", "goqueue", *words],
            input=stdin,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout, done.stderr


class EncryptedBroker(_Listeners, _Installation):
    """A node, and a super user `ann` who is to be created."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.authority = Authority(directory / "certificates")
        self.files = self.new_certificate()
        _Listeners.__init__(self, directory, {**self._settings(), **(settings or {})})


class EncryptedCluster(Cluster, _Installation):
    """Three nodes; clients of HTTP and SQS each use another one."""

    kind = _ClusterListeners

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self.authority = Authority(directory / "certificates")
        self.files = self.new_certificate()
        Cluster.__init__(self, directory, settings={**self._settings(), **(settings or {})})

    @property
    def http(self) -> str:
        return self.nodes[2].http

    @property
    def sqs(self) -> str:
        return self.nodes[3].sqs
