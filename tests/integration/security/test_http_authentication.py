"""Clients of HTTP, the registry and SQS that must say who they are."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.auth
import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.integration.security.secured import ADMIN, ADMIN_PASSWORD, SETTINGS, SecuredBroker
from tests.integration.sqs import connect, error_of
from tests.integration.waiting import eventually

PASSWORD = "planted-Alice-passw0rd"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    made = SecuredBroker(tmp_path_factory.mktemp("secured"), SETTINGS)
    try:
        made.start()
        eventually(lambda: is_up(made), because="the administrator is created")
        made.create_user("alice", PASSWORD)
        yield made
    finally:
        made.close()


def is_up(node: SecuredBroker) -> bool:
    with node.as_admin() as api:
        return api.get("/v1/whoami").status_code == 200


def curl(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        ["curl", "-s", "-i", "--max-time", "20", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return int(done.stdout.split()[1]), done.stdout


# HTTP


def test_curl_authenticates_in_every_way(node: SecuredBroker) -> None:
    url = f"{node.http}/v1/whoami"
    _, key = node.create_key("alice")
    status, text = curl(url)
    assert status == 401
    assert 'www-authenticate: Basic realm="GoQueue"' in text
    assert "authentication_required" in text
    for words in (
        ("-u", f"alice:{PASSWORD}"),
        ("-u", f":{key}"),
        ("-H", f"Authorization: Bearer {key}"),
        ("-H", f"X-API-Key: {key}"),
    ):
        status, text = curl(*words, url)
        assert status == 200, words
        assert '"principal":"User:alice"' in text
    for words in (("-u", "alice:wrong"), ("-H", f"Authorization: Bearer {key}x")):
        status, text = curl(*words, url)
        assert (status, "authentication_failed" in text) == (401, True)
    assert curl(f"{node.http}/healthz")[0] == 200
    assert curl(f"{node.registry}/subjects")[0] == 401
    assert curl(f"{node.http}/registry/subjects")[0] == 401


def test_an_expired_key_is_refused_on_an_open_connection(node: SecuredBroker) -> None:
    _, key = node.create_key("alice", ttl_ms=1_500)
    with httpx.Client(base_url=node.http, headers={"authorization": f"Bearer {key}"}) as api:
        assert api.get("/v1/whoami").status_code == 200
        eventually(
            lambda: api.get("/v1/whoami").status_code == 401, because="the key expires", within=10
        )


def test_a_disabled_user_is_out_within_seconds(node: SecuredBroker) -> None:
    node.create_user("dora", PASSWORD)
    with (
        httpx.Client(base_url=node.http, auth=("dora", PASSWORD), timeout=20) as dora,
        node.as_admin() as admin,
    ):
        assert dora.get("/v1/whoami").json()["principal"] == "User:dora"
        assert dora.get("/v1/users").status_code == 403
        assert dora.get("/v1/users/dora").status_code == 200
        assert dora.get("/v1/users/alice").status_code == 403
        assert admin.patch("/v1/users/dora", json={"disabled": True}).status_code == 200
        assert dora.get("/v1/whoami").status_code == 401


def test_clients_that_hang_up_during_the_check_leave_nothing(node: SecuredBroker) -> None:
    host, port = node.http.removeprefix("http://").split(":")
    for number in range(40):
        login = b64encode(f"nobody{number}:{number}".encode()).decode()
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            head = f"GET /v1/whoami HTTP/1.1\r\nhost: x\r\nauthorization: Basic {login}\r\n\r\n"
            raw.sendall(head.encode())
    assert "Traceback" not in node.log_text
    # So many failures of one address make it wait, which the next client would notice.
    eventually(lambda: is_up(node), because="the address may try again", within=60)


def test_a_key_is_rotated_under_load_without_a_lost_message(node: SecuredBroker) -> None:
    key_id, key = node.create_key("alice")
    keys = [key]
    sent: list[str] = []
    problems: list[str] = []
    stop = threading.Event()

    def publish(worker: int) -> None:
        with httpx.Client(base_url=node.http, timeout=20) as api:
            number = 0
            while not stop.is_set():
                value = f"{worker}-{number}"
                number += 1
                answer = api.post(
                    "/v1/topics/rotated/publish",
                    json={"value": value},
                    headers={"authorization": f"Bearer {keys[-1]}"},
                )
                if answer.status_code == 200:
                    sent.append(value)
                else:
                    problems.append(f"{answer.status_code} {answer.text}")

    with node.as_admin() as admin:
        assert admin.post("/v1/topics", json={"name": "rotated"}).status_code == 201
        workers = [threading.Thread(target=publish, args=(number,)) for number in range(3)]
        for worker in workers:
            worker.start()
        try:
            for _ in range(3):
                wanted = len(sent) + 60
                eventually(lambda wanted=wanted: len(sent) >= wanted, because="messages are sent")
                made = admin.post(f"/v1/keys/{key_id}/rotate", json={"overlap_ms": 1_500}).json()
                key_id = made["key"]["id"]
                keys.append(made["secret"])
            old = {"authorization": f"Bearer {keys[-2]}"}
            eventually(
                lambda: httpx.get(f"{node.http}/v1/whoami", headers=old).status_code == 401,
                because="the overlap ends",
                within=20,
            )
        finally:
            stop.set()
            for worker in workers:
                worker.join(30)
        assert problems == []
        read: list[str] = []
        cursor = ""
        while len(read) < len(sent):
            query = {"limit": "1000", **({"cursor": cursor} if cursor else {})}
            page = admin.get("/v1/topics/rotated/messages", params=query).json()
            assert page["messages"], "messages are missing"
            read += [one["value"] for one in page["messages"]]
            cursor = page["cursor"]
    assert sorted(read) == sorted(sent)


def test_the_commands_manage_users_and_keys(node: SecuredBroker) -> None:
    file = node.directory / "password"
    file.write_text("carol's password\n")
    made = node.cli_json("user", "create", "carol", "--password-file", str(file))
    assert (made["name"], made["password"]) == ("carol", True)
    new = node.cli_json("key", "create", "carol", "--expires", "1h", "--description", "for tests")
    as_carol = {"GOQUEUE_USER": "", "GOQUEUE_PASSWORD": "", "GOQUEUE_API_KEY": new["secret"]}
    assert node.cli_json("user", "whoami", **as_carol)["principal"] == "User:carol"
    table = node.cli("key", "rotate", new["id"], "--overlap", "1h")
    assert table.splitlines()[-1].startswith("gqk_")
    node.cli("user", "set-password", "carol", stdin="another password\n")
    own = {"GOQUEUE_USER": "carol", "GOQUEUE_PASSWORD": "another password"}
    assert "may not" in node.cli("user", "list", code=1, **own)


# The registry


def test_a_registry_client_authenticates(node: SecuredBroker) -> None:
    login = f"alice:{PASSWORD}"
    registry = SchemaRegistryClient({"url": node.registry, "basic.auth.user.info": login})
    schema = Schema('{"type": "string"}', "AVRO")
    assert registry.register_schema("secured", schema) > 0
    assert registry.get_subjects() == ["secured"]
    mounted = SchemaRegistryClient({"url": f"{node.http}/registry", "basic.auth.user.info": login})
    assert mounted.get_subjects() == ["secured"]
    wrong = SchemaRegistryClient({"url": node.registry, "basic.auth.user.info": "alice:wrong"})
    with pytest.raises(SchemaRegistryError) as refused:
        wrong.get_subjects()
    assert (refused.value.http_status_code, refused.value.error_code) == (401, 401)
    node.create_user("erin", PASSWORD)
    erin = SchemaRegistryClient({"url": node.registry, "basic.auth.user.info": f"erin:{PASSWORD}"})
    with pytest.raises(SchemaRegistryError) as denied:
        erin.register_schema("secured", schema)
    # What she may not describe looks as if it did not exist.
    assert (denied.value.http_status_code, denied.value.error_code) == (404, 40401)


# SQS


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_boto3_signs_with_an_access_key(node: SecuredBroker, protocol: str) -> None:
    key_id, secret = node.create_key("alice", kind="access")
    sqs = connect(node.sqs, protocol=protocol, key=key_id, secret=secret)
    url = sqs.create_queue(QueueName=f"signed-{protocol}")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="hello")
    found = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert [one["Body"] for one in found] == ["hello"]
    wrong = connect(node.sqs, protocol=protocol, key=key_id, secret="x" * 40)
    code = {"json": "InvalidSignatureException", "query": "SignatureDoesNotMatch"}[protocol]
    assert error_of(wrong.list_queues)[:2] in ((code, 403), ("SignatureDoesNotMatch", 403))
    unknown = connect(node.sqs, protocol=protocol, key="AKIDEXAMPLE", secret=secret)
    assert error_of(unknown.list_queues)[0] in (
        "UnrecognizedClientException",
        "InvalidClientTokenId",
    )
    with node.as_admin() as admin:
        assert admin.get(f"/v1/keys/{key_id}").json()["last_used_at"] is not None
        assert admin.delete(f"/v1/keys/{key_id}").status_code == 204
    assert error_of(sqs.list_queues)[1] == 403


def test_an_expired_access_key_is_refused(node: SecuredBroker) -> None:
    key_id, secret = node.create_key("alice", kind="access", ttl_ms=1_500)
    sqs = connect(node.sqs, key=key_id, secret=secret)
    sqs.list_queues()

    def is_refused() -> bool:
        try:
            sqs.list_queues()
        except sqs.exceptions.ClientError as error:
            return bool(error.response["ResponseMetadata"]["HTTPStatusCode"] == 403)
        return False

    eventually(is_refused, because="the key expires", within=10)


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_wrong_clock_is_refused(
    node: SecuredBroker, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    key_id, secret = node.create_key("alice", kind="access")
    sqs = connect(node.sqs, key=key_id, secret=secret)
    wrong = (datetime.now(UTC) + timedelta(minutes=minutes)).replace(tzinfo=None)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: wrong)
    code, status, text = error_of(sqs.list_queues)
    assert status == 403
    assert "Signature" in text + code


def test_a_presigned_url_is_accepted_until_it_expires(node: SecuredBroker) -> None:
    key_id, secret = node.create_key("alice", kind="access")
    sqs = connect(node.sqs, protocol="query", key=key_id, secret=secret)
    url: Any = sqs.generate_presigned_url("list_queues", ExpiresIn=60, HttpMethod="GET")
    assert httpx.get(url).status_code == 200
    assert httpx.get(url.replace("X-Amz-Expires=60", "X-Amz-Expires=600")).status_code == 403
    assert httpx.get(url + "&QueueNamePrefix=x").status_code == 403
    short: Any = sqs.generate_presigned_url("list_queues", ExpiresIn=1, HttpMethod="GET")
    eventually(lambda: httpx.get(short).status_code == 403, because="it expires", within=10)


def test_an_unsigned_request_is_refused(node: SecuredBroker) -> None:
    answer = httpx.get(f"{node.sqs}/?Action=ListQueues")
    assert (answer.status_code, "MissingAuthenticationToken" in answer.text) == (403, True)


def test_a_client_that_stays_connected_pays_for_its_password_once(node: SecuredBroker) -> None:
    with httpx.Client(base_url=node.http, auth=(ADMIN, ADMIN_PASSWORD), timeout=20) as api:
        api.get("/v1/whoami")
        began = time.perf_counter()
        for _ in range(50):
            assert api.get("/v1/whoami").status_code == 200
        assert time.perf_counter() - began < 5
