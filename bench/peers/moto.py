"""moto's server: SQS in memory, for tests of programs that use AWS. It comes with the test lock."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.peers import PeerUnavailable
from bench.peers.child import ChildPeer
from bench.peers.sqs import serves


class Moto(ChildPeer):
    """One running server."""

    def __init__(self, home: Path) -> None:
        super().__init__("moto", home)
        try:
            self.version = version("moto")
        except PackageNotFoundError:
            raise PeerUnavailable("moto is not installed; `make setup-test` does that") from None

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        """Start the server and wait until it serves."""
        self._make_home()
        command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1"]
        self._launch([*command, "--port", str(self._port)], lambda: serves(self.endpoint))
