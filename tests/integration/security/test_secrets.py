"""No secret that a node is told appears in anything that it shows or stores."""

from __future__ import annotations

import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.integration.security.secured import ADMIN_PASSWORD, SETTINGS, SecuredBroker
from tests.integration.sqs import connect, error_of
from tests.integration.waiting import eventually

SQS_SECRET = "planted-Sqs-secret"
PASSWORD = "planted-Mallory-passw0rd"
WRONG = "planted-Wrong-passw0rd"
TOKEN = "planted-Wrong-token"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    directory = tmp_path_factory.mktemp("secrets")
    settings = {
        **SETTINGS,
        "sqs.access_keys": f"AKIDPLANTED:{SQS_SECRET}",
        "security.super_users": "User:AKIDPLANTED;User:ANONYMOUS",
        "security.audit": "on",
        "security.audit_reads": "1",
        "security.audit_file": directory / "audit.log",
        "logging.level": "debug",
    }
    made = SecuredBroker(directory, settings)
    try:
        made.start()
        eventually(
            lambda: httpx.get(f"{made.http}/readyz").status_code == 200, because="the node is ready"
        )
        yield made
    finally:
        made.close()


def planted(node: SecuredBroker) -> tuple[list[str], list[str]]:
    """Use every kind of secret, rightly and wrongly; return them, and what was shown."""
    shown: list[str] = []
    with node.as_admin() as api:

        def send(method: str, path: str, **more: object) -> httpx.Response:
            answer = api.request(method, path, **more)  # type: ignore[arg-type]
            shown.append(f"{answer.headers}{answer.text}")
            return answer

        assert send("POST", "/v1/users", json={"name": "mallory", "password": PASSWORD}).is_success
        send("POST", "/v1/users", json={"name": "mallory", "password": PASSWORD})
        send("POST", "/v1/users", json={"name": "m/", "password": PASSWORD})
        send("PUT", "/v1/users/nobody/password", json={"password": PASSWORD})
        send("PUT", "/v1/users/mallory/password", json={"password": [PASSWORD]})
        send("PUT", "/v1/users/mallory/password", json={PASSWORD[:8]: 1, "password": PASSWORD})
        made = [
            api.post("/v1/users/mallory/keys", json={"kind": kind}).json()
            for kind in ("api", "access")
        ]
        api_key, access_key = (one["secret"] for one in made)
        for path in ("/v1/users", "/v1/users/mallory", "/v1/users/mallory/keys", "/v1/whoami"):
            send("GET", path)
        for login in (
            {"authorization": f"Bearer {api_key}"},
            {"authorization": f"Bearer {TOKEN}"},
            {"authorization": "Basic " + b64encode(f"mallory:{PASSWORD}".encode()).decode()},
            {"authorization": "Basic " + b64encode(f"mallory:{WRONG}".encode()).decode()},
            {"authorization": WRONG},
            {"x-api-key": TOKEN},
            {"x-api-key": api_key},
        ):
            for url in (f"{node.http}/v1/topics/missing", f"{node.registry}/subjects"):
                answer = httpx.get(url, headers=login)
                shown.append(f"{answer.headers}{answer.text}")
        httpx.get(f"{node.http}/v1/whoami", params={"api_key": "x"})
    for key, secret in (("AKIDPLANTED", SQS_SECRET), (made[1]["key"]["id"], access_key)):
        sqs = connect(node.sqs, key=key, secret=secret)
        shown.append(str(error_of(sqs.get_queue_url, QueueName="missing")))
    wrong = connect(node.sqs, key="AKIDPLANTED", secret=WRONG)
    shown.append(str(error_of(wrong.list_queues)))
    bare = api_key.rpartition("_")[2]
    secrets = [ADMIN_PASSWORD, SQS_SECRET, PASSWORD, WRONG, TOKEN, api_key, bare, access_key]
    return secrets, shown


def printed_settings(node: SecuredBroker) -> str:
    command = node._command(Path("ready"))
    command = [*command[command.index(sys.executable) :], "--print-config"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def described_settings(node: SecuredBroker) -> str:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    (resource,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    return str({name: one.value for name, one in resource.result(20).items()})


def test_secrets_appear_nowhere(node: SecuredBroker) -> None:
    secrets, shown = planted(node)
    shown.append(printed_settings(node))
    assert "(hidden)" in shown[-1], "the settings were printed"
    shown.append(described_settings(node))
    audit = node.directory / "audit.log"
    eventually(lambda: "mallory" in audit.read_text(), because="the audit log is written")
    shown += [audit.read_text(), (node.directory / "ready.json").read_text()]
    node.stop()
    shown.append(node.log_text)
    stored = [one.read_bytes() for one in node.data_dir.rglob("*") if one.is_file()]
    for secret in secrets:
        for text in shown:
            assert secret not in text
            assert b64encode(secret.encode()).decode() not in text
        assert not any(secret.encode() in data for data in stored)


def test_only_the_owner_may_read_what_is_stored(node: SecuredBroker) -> None:
    assert stat.S_IMODE(node.data_dir.stat().st_mode) == 0o700
    for path in node.data_dir.rglob("*"):
        allowed = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) & ~allowed == 0, path
    assert stat.S_IMODE((node.directory / "audit.log").stat().st_mode) == 0o600
