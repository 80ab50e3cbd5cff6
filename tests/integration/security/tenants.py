"""A node with two tenants, each with a user who may do everything in it."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.integration.waiting import eventually

from .secured import SETTINGS, SecuredBroker

TENANTS = ("acme", "other")


class TenantsBroker(SecuredBroker):
    """A node whose Kafka clients must authenticate too."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {**SETTINGS, "groups.initial_rebalance_delay_ms": 0})

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        at = command.index("--listen-kafka") + 1
        command[at] = f"sasl_plaintext://{command[at]}"
        return command

    def start(self) -> None:
        """Start the node with its tenants."""
        super().start()
        eventually(self._is_up, because="the administrator is created")
        for tenant in TENANTS:
            user, password = login_of(tenant)
            secret = self.directory / f"{tenant}.password"
            secret.write_text(password)
            self.cli("tenant", "create", tenant, "--admin", user)
            words = ("--tenant", tenant, "--password-file", str(secret))
            self.cli("user", "create", user, *words)

    def _is_up(self) -> bool:
        with self.as_admin() as api:
            return api.get("/v1/whoami").status_code == 200

    def api(self, tenant: str) -> httpx.Client:
        return httpx.Client(base_url=self.http, auth=login_of(tenant), timeout=20)


def login_of(tenant: str) -> tuple[str, str]:
    return f"{tenant}-admin", f"planted-{tenant}-passw0rd"
