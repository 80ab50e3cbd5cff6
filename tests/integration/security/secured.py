"""A node whose HTTP, registry and SQS listeners require credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.integration.process import Broker

ADMIN, ADMIN_PASSWORD = "admin", "planted-Admin-passw0rd"
SETTINGS: dict[str, object] = {
    "security.initial_admin": f"{ADMIN}:{ADMIN_PASSWORD}",
    "security.super_users": "User:alice",
    "security.access_control": "on",
}
CARRIED = ("--listen-http", "--listen-registry", "--listen-sqs")


class SecuredBroker(Broker):
    """A node on which clients of HTTP must authenticate; those of Kafka need not."""

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        for flag in CARRIED:
            at = command.index(flag) + 1
            command[at] = f"sasl_plaintext://{command[at]}"
        return command

    def as_admin(self) -> httpx.Client:
        return httpx.Client(base_url=self.http, auth=(ADMIN, ADMIN_PASSWORD), timeout=20)

    def create_user(self, name: str, password: str) -> None:
        with self.as_admin() as api:
            made = api.post("/v1/users", json={"name": name, "password": password})
            assert made.status_code in (201, 409), made.text

    def create_key(self, user: str, **options: Any) -> tuple[str, str]:
        """The id and the secret of a new key."""
        with self.as_admin() as api:
            made = api.post(f"/v1/users/{user}/keys", json=options)
            assert made.status_code == 201, made.text
            return made.json()["key"]["id"], made.json()["secret"]

    def cli(self, *words: str, stdin: str = "", code: int = 0, **environment: str) -> str:
        """What `goqueue` prints for the administrator."""
        environ = {
            **os.environ,
            "GOQUEUE_HTTP": self.http,
            "GOQUEUE_USER": ADMIN,
            "GOQUEUE_PASSWORD": ADMIN_PASSWORD,
            "GOQUEUE_CLI_CONFIG": str(self.directory / "contexts.yaml"),
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
        return done.stdout if code == 0 else done.stderr

    def cli_json(self, *words: str, **more: Any) -> Any:
        return json.loads(self.cli(*words, "-o", "json", **more))
