"""Nodes whose Kafka clients must authenticate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.integration.process import Broker

from .sasl_clients import Login

ADMIN = Login("SCRAM-SHA-512", "admin", "admin-secret")


class GuardedBroker(Broker):
    """A node with an administrator, who is the first user; access control is off."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(
            directory,
            {
                "security.initial_admin": f"{ADMIN.user}:{ADMIN.password}",
                "security.access_control": "off",
                "groups.initial_rebalance_delay_ms": 0,
                **(settings or {}),
            },
        )

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        at = command.index("--listen-kafka") + 1
        command[at] = f"sasl_plaintext://{command[at]}"
        return command
