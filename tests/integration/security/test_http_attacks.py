"""Attacks over HTTP, SQS and the registry by a tenant's user who knows names and ids of another."""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from tests.integration.sqs import connect
from tests.integration.waiting import eventually

from .secured import ADMIN
from .tenants import TENANTS, TenantsBroker, login_of

SECRET = "only-for-other"
AVRO = '{"type": "record", "name": "Hidden", "fields": [{"name": "a", "type": "string"}]}'


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantsBroker]:
    made = TenantsBroker(tmp_path_factory.mktemp("attacked"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def queues(node: TenantsBroker) -> dict[str, Any]:
    """An SQS client of each tenant, each with a queue `jobs` and one of its own."""
    clients = {}
    for tenant in TENANTS:
        key, secret = node.create_key(login_of(tenant)[0], kind="access")
        sqs = clients[tenant] = connect(node.sqs, key=key, secret=secret)
        for name in ("jobs", f"of-{tenant}"):
            sqs.create_queue(QueueName=name)
    return clients


def error_code(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return str(refused.value.response["Error"]["Code"])


def url_of(sqs: Any, name: str) -> str:
    return str(sqs.get_queue_url(QueueName=name)["QueueUrl"])


def test_no_spelling_of_a_queue_url_reaches_another_tenant(
    node: TenantsBroker, queues: dict[str, Any]
) -> None:
    acme, other = queues["acme"], queues["other"]
    victim = url_of(other, "of-other")
    account, own_account = victim.split("/")[-2], url_of(acme, "jobs").split("/")[-2]
    assert account != own_account
    base = node.sqs
    spellings = [
        victim,
        f"{base}/{account}/of-other/",
        f"{base}/{account}//of-other",
        f"{base}//{account}/of-other",
        f"{base}/{own_account}/../{account}/of-other",
        f"{base}/{own_account}/{account}/of-other",
        f"{base}/{own_account}%2F..%2F{account}/of-other",
        f"{base}/{own_account}/%2e%2e/{account}/of-other",
        f"{base}/{own_account}/~other~of-other",
        f"{base}/{own_account}/%7Eother%7Eof-other",
        f"{base}/{own_account}/of-other",
        f"{base}/{account}/of-other?x=/{own_account}/jobs",
        f"/{account}/of-other",
        f"{account}/of-other",
        "~other~of-other",
        "of-other",
        f"arn:aws:sqs:us-east-1:{account}:of-other",
    ]
    other.send_message(QueueUrl=victim, MessageBody=SECRET)
    for url in spellings:
        for call, arguments in (
            (acme.send_message, {"MessageBody": "forged"}),
            (acme.receive_message, {"VisibilityTimeout": 0}),
            (acme.get_queue_attributes, {"AttributeNames": ["All"]}),
            (acme.purge_queue, {}),
            (acme.delete_queue, {}),
            (acme.set_queue_attributes, {"Attributes": {"VisibilityTimeout": "1"}}),
        ):
            code = error_code(call, QueueUrl=url, **arguments)
            assert code.rpartition(".")[2] in (
                *("AccessDenied", "QueueDoesNotExist", "NonExistentQueue"),
                *("InvalidAddress", "InvalidParameterValue"),
            ), (url, code)
    assert error_code(acme.get_queue_url, QueueName="of-other", QueueOwnerAWSAccountId=account)
    policy = (
        f'{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:{account}:of-other","maxReceiveCount":1}}'
    )
    own = url_of(acme, "jobs")
    assert error_code(acme.set_queue_attributes, QueueUrl=own, Attributes={"RedrivePolicy": policy})
    found = other.receive_message(QueueUrl=victim, MaxNumberOfMessages=10)["Messages"]
    assert [one["Body"] for one in found] == [SECRET]
    other.delete_message(QueueUrl=victim, ReceiptHandle=found[0]["ReceiptHandle"])


def test_a_receipt_is_good_for_the_tenant_that_got_it(queues: dict[str, Any]) -> None:
    """Both have a queue of the same name, so that only the receipt tells them apart."""
    acme, other = queues["acme"], queues["other"]
    victim, own = url_of(other, "jobs"), url_of(acme, "jobs")
    other.send_message(QueueUrl=victim, MessageBody=SECRET)
    acme.send_message(QueueUrl=own, MessageBody="mine")
    [message] = other.receive_message(QueueUrl=victim, VisibilityTimeout=600)["Messages"]
    stolen = message["ReceiptHandle"]
    for call, arguments in (
        (acme.delete_message, {}),
        (acme.change_message_visibility, {"VisibilityTimeout": 0}),
    ):
        try:
            call(QueueUrl=own, ReceiptHandle=stolen, **arguments)
        except ClientError:
            continue
    assert "Messages" not in other.receive_message(QueueUrl=victim)  # still leased
    other.change_message_visibility(QueueUrl=victim, ReceiptHandle=stolen, VisibilityTimeout=0)
    [again] = other.receive_message(QueueUrl=victim)["Messages"]
    assert again["Body"] == SECRET
    [mine] = acme.receive_message(QueueUrl=own)["Messages"]
    assert mine["Body"] == "mine"
    other.delete_message(QueueUrl=victim, ReceiptHandle=again["ReceiptHandle"])
    acme.delete_message(QueueUrl=own, ReceiptHandle=mine["ReceiptHandle"])


# Ids


def test_ids_of_jobs_and_schedules_are_good_for_their_tenant(node: TenantsBroker) -> None:
    with node.api("other") as other, node.api("acme") as acme:
        for api in (acme, other):
            api.post("/v1/topics", json={"name": "orders"})
            api.post("/v1/topics", json={"name": "orders.dlq"})
        delayed = other.post(
            "/v1/topics/orders/publish", json={"value": SECRET, "delay_ms": 3_600_000}
        )
        schedule = delayed.json()["schedule_id"]
        for method, path in (
            ("GET", f"/v1/schedules/{schedule}"),
            ("DELETE", f"/v1/schedules/{schedule}"),
            ("PATCH", f"/v1/schedules/{schedule}"),
        ):
            body = {"deliver_at": "2030-01-01T00:00:00Z"} if method == "PATCH" else None
            asked = acme.request(method, path, json=body)
            missing = acme.request(method, path[:-1] + ("0" if path[-1] != "0" else "1"), json=body)
            assert asked.status_code == missing.status_code == 404, (method, asked.text)
            assert SECRET not in asked.text
        assert other.get(f"/v1/schedules/{schedule}").status_code == 200
        begun = other.post("/v1/transactions", json={"transactional_id": "loader"})
        handle = begun.json()["id"]
        for path in ("commit", "abort"):
            assert acme.post(f"/v1/transactions/{handle}/{path}").status_code in (404, 405)
        body = {"messages": [{"topic": "orders", "value": "forged"}]}
        assert acme.post(f"/v1/transactions/{handle}/publish", json=body).status_code == 404
        assert other.post(f"/v1/transactions/{handle}/abort").status_code < 300


# The registry


@pytest.fixture(scope="module")
def hidden_id(node: TenantsBroker) -> int:
    """The id of a schema of the tenant `other`."""
    with registry(node, "other") as other:
        made = other.post("/subjects/hidden-value/versions", json={"schema": AVRO})
        assert made.status_code == 200, made.text
        return int(made.json()["id"])


def registry(node: TenantsBroker, tenant: str) -> httpx.Client:
    return httpx.Client(base_url=node.registry, auth=login_of(tenant), timeout=20)


@pytest.mark.parametrize(
    "subject",
    [
        "hidden-value",
        ":.~other~:hidden-value",
        ":.~other~hidden-value",
        "%3A.~other~%3Ahidden-value",
        ":.:.~other~:hidden-value",
        ":.%7Eother%7E:hidden-value",
        ":.~acme~.~other~:hidden-value",
        ":.~acme~:.~other~:hidden-value",
        "~other~hidden-value",
        ":*:hidden-value",
        ":.~other~:",
    ],
)
def test_no_subject_leads_into_another_tenant(
    node: TenantsBroker, hidden_id: int, subject: str
) -> None:
    with registry(node, "acme") as acme:
        for path in (
            f"/subjects/{subject}/versions",
            f"/subjects/{subject}/versions/1",
            f"/subjects/{subject}/versions/latest/schema",
            f"/config/{subject}",
            f"/mode/{subject}",
        ):
            found = acme.get(path)
            assert "Hidden" not in found.text, path
            assert found.status_code >= 400 or "/versions" not in path, (path, found.text)
        reference = {"name": "Hidden", "subject": subject, "version": 1}
        outer = AVRO.replace('"Hidden"', '"Outer"').replace('"string"', '"Hidden"')
        answer = acme.post(
            "/subjects/outer/versions", json={"schema": outer, "references": [reference]}
        )
        assert answer.status_code >= 400, answer.text
        acme.delete(f"/subjects/{subject}")
        acme.put(f"/config/{subject}", json={"compatibility": "NONE"})
    with registry(node, "other") as other:
        assert other.get("/subjects/hidden-value/versions").json() == [1]
        assert other.get("/config/hidden-value").status_code == 404


def test_listings_and_ids_show_nothing_of_another_tenant(
    node: TenantsBroker, hidden_id: int
) -> None:
    with registry(node, "acme") as acme:
        for path in (
            "/subjects?subjectPrefix=:*:",
            "/subjects?subjectPrefix=:.~other~:",
            "/subjects?subjectPrefix=:*:&offset=0&limit=1",
            "/subjects?subjectPrefix=%3A.~other~",
            "/schemas?subjectPrefix=:*:",
            "/contexts",
            "/contexts/.~other~/subjects",
            "/contexts/:.~other~:/subjects",
            f"/schemas/ids/{hidden_id}",
            f"/schemas/ids/{hidden_id}/versions",
            f"/schemas/ids/{hidden_id}/subjects",
            f"/schemas/ids/{hidden_id}?subject=:.~other~:hidden-value",
            f"/schemas/ids/{hidden_id}?subject=:.~other~:",
        ):
            text = acme.get(path).text.lower()
            asked = path.lower()
            assert "hidden-value" not in text.replace(asked, ""), (path, text)
            assert '"hidden\\"' not in text, (path, text)
        # The same schema elsewhere: whether another tenant has it must not show.
        known = acme.post("/subjects/guess/versions", json={"schema": AVRO}).json()["id"]
        guess = AVRO.replace("Hidden", "Nobody")
        unknown = acme.post("/subjects/guess2/versions", json={"schema": guess}).json()["id"]
        assert unknown == known + 1, "an id tells that another tenant has the schema"


# Requests that two readers may understand differently


def raw(address: str, data: bytes) -> list[bytes]:
    """The status lines of everything that is answered to some bytes."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(data)
        connection.settimeout(1.5)
        received = b""
        try:
            while piece := connection.recv(65_536):
                received += piece
        except TimeoutError:
            pass
    return [line for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def smuggling(login: tuple[str, str]) -> dict[str, bytes]:
    """Requests in whose body a second one hides, if they are read in the wrong way."""
    basic = b64encode(":".join(login).encode())
    head = (
        b"POST /v1/topics/orders/publish HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Basic %s\r\n"
        % basic
    )
    head += b"content-type: application/json\r\n"
    inner = (
        b"DELETE /v1/topics/orders HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Basic %s\r\n\r\n"
        % basic
    )
    chunked = b"0\r\n\r\n" + inner
    length = b"content-length: %d\r\n" % len(chunked)
    return {
        "both": head + length + b"transfer-encoding: chunked\r\n\r\n" + chunked,
        "both reversed": head + b"transfer-encoding: chunked\r\n" + length + b"\r\n" + chunked,
        "space before the colon": head + length + b"transfer-encoding : chunked\r\n\r\n" + chunked,
        "folded": head + length + b"transfer-encoding:\r\n chunked\r\n\r\n" + chunked,
        "tab": head + length + b"transfer-encoding:\tchunked\r\n\r\n" + chunked,
        "vertical tab": head + length + b"transfer-encoding: \x0bchunked\r\n\r\n" + chunked,
        "two codings": head + length + b"transfer-encoding: chunked, identity\r\n\r\n" + chunked,
        "unknown coding": head + length + b"transfer-encoding: xchunked\r\n\r\n" + chunked,
        "quoted": head + length + b'transfer-encoding: "chunked"\r\n\r\n' + chunked,
        "two headers": head
        + length
        + b"transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunked,
        "two lengths": head + b"content-length: 0\r\n" + length + b"\r\n" + chunked,
        "list of lengths": head + b"content-length: 0, %d\r\n\r\n" % len(chunked) + chunked,
        "signed length": head + b"content-length: +0\r\n\r\n" + inner,
        "hexadecimal length": head + b"content-length: 0x0\r\n\r\n" + inner,
        "negative length": head + b"content-length: -1\r\n\r\n" + inner,
        "line feeds": (head + b"x: y\n" + length + b"\n" + chunked),
        "carriage return": head
        + b"x: y\rtransfer-encoding: chunked\r\n"
        + length
        + b"\r\n"
        + chunked,
        "nul": head + b"x: y\0\r\n" + length + b"\r\n" + chunked,
        "chunk size": head + b"transfer-encoding: chunked\r\n\r\n" + b"0x0\r\n\r\n" + inner,
        "negative chunk": head + b"transfer-encoding: chunked\r\n\r\n" + b"-1\r\n\r\n" + inner,
        "huge chunk": head
        + b"transfer-encoding: chunked\r\n\r\n"
        + b"10000000000000000\r\n\r\n"
        + inner,
        "bare line feed in a chunk": head
        + b"transfer-encoding: chunked\r\n\r\n"
        + b"0\n\n"
        + inner,
        "upgrade": head + b"connection: upgrade\r\nupgrade: h2c\r\n" + length + b"\r\n" + chunked,
        "method": head.replace(b"POST", b"CONNECT") + length + b"\r\n" + chunked,
    }


@pytest.mark.parametrize("listener", ["http", "registry", "sqs"])
@pytest.mark.parametrize("how", smuggling(("", "")))
def test_a_request_does_not_hide_another(node: TenantsBroker, how: str, listener: str) -> None:
    """Either the body has its stated length, or the request is refused and the connection ends."""
    with node.api("acme") as api:
        api.post("/v1/topics", json={"name": "orders"})
    statuses = raw(getattr(node, listener), smuggling(login_of("acme"))[how])
    with node.api("acme") as api:
        assert api.get("/v1/topics/orders").status_code == 200, f"{how}: the hidden one ran"
    assert len(statuses) <= 1, statuses
    assert all(int(one.split()[1]) >= 400 for one in statuses), statuses


# Headers of proxies


def test_headers_of_proxies_change_nobody_s_address(node: TenantsBroker) -> None:
    """Nobody checks who sets them, so neither limits of addresses nor the audit log go by them."""
    spoofed = {
        "x-forwarded-for": "203.0.113.9",
        "x-real-ip": "203.0.113.9",
        "forwarded": "for=203.0.113.9;host=evil.example",
        "x-forwarded-host": "evil.example",
        "x-forwarded-user": ADMIN,
        "x-remote-user": ADMIN,
        "x-original-url": "/v1/users",
        "x-rewrite-url": "/v1/users",
        "x-http-method-override": "DELETE",
    }
    with node.api("acme") as api:
        principal = api.get("/v1/whoami", headers=spoofed).json()["principal"]
        assert principal == f"User:{login_of('acme')[0]}"
        api.post("/v1/topics", json={"name": "spoofed"})
        answer = api.get("/v1/topics/spoofed", headers=spoofed)
        assert answer.json()["name"] == "spoofed"
        assert api.get("/v1/topics/spoofed").status_code == 200
        assert "evil.example" not in answer.text
        assert api.get("/v1/users/nobody", headers=spoofed).status_code == 404
    with node.as_admin() as admin:

        def addresses() -> set[str]:
            events = admin.get("/v1/audit", params={"from": "1h", "limit": 500}).json()["events"]
            return {one["src_endpoint"].get("ip", "") for one in events if "src_endpoint" in one}

        eventually(lambda: "127.0.0.1" in addresses(), because="the calls are in the audit log")
        assert "203.0.113.9" not in addresses()
