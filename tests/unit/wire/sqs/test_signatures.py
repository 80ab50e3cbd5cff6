"""Signature Version 4: AWS's published examples, and whatever botocore signs."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from goqueue.wire.carrier.calls import Request
from goqueue.wire.sqs import signatures
from goqueue.wire.sqs.errors import (
    IncompleteSignature,
    InvalidClientToken,
    MissingAuthentication,
    SignatureDoesNotMatch,
    SqsError,
)
from goqueue.wire.sqs.front_end import SqsRules
from tests.simulation.world import World
from tests.unit.wire.sqs.client import Node

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TIME = "20150830T123600Z"
NOW_MS = 1_440_938_160_000
KEYS = {"AKIDEXAMPLE": SECRET}

# Of the test suite that AWS has published for implementers: method, target, headers, body, and
# the signature that they must have.
EXAMPLES: list[tuple[str, str, dict[str, str], bytes, str]] = [
    ("GET", "/", {}, b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("POST", "/", {}, b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    (
        "GET",
        "/?Param2=value2&Param1=value1",
        {},
        b"",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        "POST",
        "/",
        {"content-type": "application/x-www-form-urlencoded"},
        b"Param1=value1",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
]


def verify(request: Request, secrets: dict[str, str], *, now_ms: int) -> None:
    """Verify a request that must be signed with one of these keys."""
    claim = signatures.claim_of(request)
    if claim is None:
        raise MissingAuthentication
    if claim.key_id not in secrets:
        raise InvalidClientToken
    signatures.verify(request, claim, secrets[claim.key_id], now_ms=now_ms)


def example(method: str, target: str, headers: dict[str, str], body: bytes) -> Request:
    path, _, query = target.partition("?")
    named = {"host": "example.amazonaws.com", "x-amz-date": TIME, **headers}
    request = Request(
        method, path, query.encode(), {k.encode(): v.encode() for k, v in named.items()}
    )
    request.body = body
    return request


@pytest.mark.parametrize(("method", "target", "headers", "body", "signature"), EXAMPLES)
def test_published_examples_have_their_signatures(
    method: str, target: str, headers: dict[str, str], body: bytes, signature: str
) -> None:
    request = example(method, target, headers, body)
    names = tuple(sorted(("host", "x-amz-date", *headers)))
    claim = signatures.Claim(
        "AKIDEXAMPLE", "20150830", "us-east-1", "service", names, signature, TIME
    )
    canonical = signatures.canonical_request(request, claim)
    assert signatures.sign(canonical, claim, SECRET) == signature


def signed(
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    body: bytes,
    *,
    method: str = "POST",
    is_presigned: bool = False,
    key: str = "AKIDEXAMPLE",
    service: str = "sqs",
    at: datetime = datetime(2015, 8, 30, 12, 36, tzinfo=UTC),
) -> Request:
    """A request that botocore has signed, as it arrives here."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: at.replace(tzinfo=None))
    sent = AWSRequest(method, url, data=body, headers={"X-Amz-Target": "AmazonSQS.SendMessage"})
    credentials = Credentials(key, SECRET)
    if is_presigned:
        SigV4QueryAuth(credentials, service, "eu-west-1", expires=300).add_auth(sent)
    else:
        SigV4Auth(credentials, service, "eu-west-1").add_auth(sent)
    parts = urlsplit(sent.prepare().url)
    headers = {name.lower().encode(): str(value).encode() for name, value in sent.headers.items()}
    headers.setdefault(b"host", parts.netloc.encode())
    request = Request(method, parts.path or "/", parts.query.encode(), headers)
    request.body = body
    return request


URLS = (
    "http://127.0.0.1:9324",
    "http://127.0.0.1:9324/000000000000/orders",
    "http://localhost:9324/a%20b/c~d?x=1&y=%2F&x=0",
    "https://sqs.example.com/a//b/../c/",
)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("is_presigned", [False, True], ids=["header", "address"])
def test_what_botocore_signs_is_accepted(
    monkeypatch: pytest.MonkeyPatch, url: str, is_presigned: bool
) -> None:
    chance = random.Random(url)
    method = "GET" if is_presigned else "POST"
    for _ in range(5):
        body = b"" if is_presigned else chance.randbytes(chance.randrange(100))
        request = signed(monkeypatch, url, body, method=method, is_presigned=is_presigned)
        verify(request, KEYS, now_ms=NOW_MS)


def _other_body(request: Request) -> None:
    request.body = b"other"


def _other_path(request: Request) -> None:
    request.path = "/other"


def _other_query(request: Request) -> None:
    request.query = b"a=1"


def _other_header(request: Request) -> None:
    request.headers[b"host"] = b"elsewhere"


@pytest.mark.parametrize("change", [_other_body, _other_path, _other_query, _other_header])
def test_what_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    request = signed(monkeypatch, URLS[1], b"hello")
    change(request)
    with pytest.raises(SignatureDoesNotMatch):
        verify(request, KEYS, now_ms=NOW_MS)


def test_another_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    request = signed(monkeypatch, URLS[1], b"hello")
    with pytest.raises(SignatureDoesNotMatch):
        verify(request, {"AKIDEXAMPLE": "other"}, now_ms=NOW_MS)


def test_an_unknown_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    request = signed(monkeypatch, URLS[1], b"hello", key="ANOTHER")
    with pytest.raises(InvalidClientToken):
        verify(request, KEYS, now_ms=NOW_MS)


def test_a_signature_for_another_service_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    request = signed(monkeypatch, URLS[1], b"hello", service="sns")
    with pytest.raises(SignatureDoesNotMatch):
        verify(request, KEYS, now_ms=NOW_MS)


@pytest.mark.parametrize("minutes", [-16, 16])
def test_old_and_early_signatures_are_refused(
    monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    request = signed(monkeypatch, URLS[1], b"hello")
    verify(request, KEYS, now_ms=NOW_MS + 14 * 60_000)
    with pytest.raises(SignatureDoesNotMatch):
        verify(request, KEYS, now_ms=NOW_MS + minutes * 60_000)


def test_a_signed_address_lasts_as_long_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    request = signed(monkeypatch, URLS[1], b"", method="GET", is_presigned=True)
    verify(request, KEYS, now_ms=NOW_MS + 299_000)
    with pytest.raises(SignatureDoesNotMatch):
        verify(request, KEYS, now_ms=NOW_MS + 301_000)


@pytest.mark.parametrize(
    ("authorization", "error"),
    [
        (b"", MissingAuthentication),
        (b"Basic abc", IncompleteSignature),
        (b"AWS4-HMAC-SHA256 nonsense", IncompleteSignature),
        (
            b"AWS4-HMAC-SHA256 Credential=a/b/c, SignedHeaders=host, Signature=0",
            IncompleteSignature,
        ),
    ],
)
def test_what_is_not_signed_is_refused(authorization: bytes, error: type[SqsError]) -> None:
    request = Request("POST", "/", headers={b"authorization": authorization, b"x-amz-date": b"x"})
    with pytest.raises(error):
        verify(request, KEYS, now_ms=NOW_MS)


def test_nonsense_is_refused_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is accepted says the same as before, if only with other blanks."""
    chance = random.Random(7)
    good = signed(monkeypatch, URLS[1], b"hello")
    refused = 0
    for _ in range(300):
        request = Request("POST", good.path, headers=dict(good.headers))
        request.body = good.body
        name = chance.choice([b"authorization", b"x-amz-date", b"host"])
        text = bytearray(good.headers[name])
        at = chance.randrange(len(text))
        text[at : at + chance.randrange(1, 4)] = chance.randbytes(chance.randrange(3))
        request.headers[name] = bytes(text)
        with suppress(SqsError):
            refused += 1
            verify(request, KEYS, now_ms=NOW_MS)
            refused -= 1
            assert signatures.claim_of(request) == signatures.claim_of(good)
            assert request.header(b"host").split() == good.header(b"host").split()
    assert refused > 200


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_a_node_with_keys_lets_in_only_who_knows_one(
    world: World, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    node = Node(world, SqsRules(access_keys={"me": "secret"}))
    now = datetime.fromtimestamp(world.broker.clock.wall_ms() / 1000, UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: now.replace(tzinfo=None))
    assert node.boto3(protocol, key="me", secret="secret").list_queues()
    for key, secret, code in (
        ("me", "wrong", "SignatureDoesNotMatch"),
        ("you", "secret", "InvalidClientTokenId"),
    ):
        client = node.boto3(protocol, key=key, secret=secret)
        with pytest.raises(client.exceptions.ClientError) as error:
            client.list_queues()
        assert error.value.response["Error"]["Code"] == code
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    refused = node.ask(b"Action=ListQueues", headers={})
    assert refused.status == 403
    assert b"<Code>MissingAuthenticationToken</Code>" in refused.body
