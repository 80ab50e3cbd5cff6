"""Stock Kafka clients that authenticate: write a message, and read it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

SECONDS_MAX = 15.0
REFUSED_SECONDS_MAX = 10.0


class Refused(Exception):
    """The broker has refused the credentials; the text is that of the client."""


@dataclass(frozen=True)
class Login:
    """What a client authenticates with."""

    mechanism: str
    user: str = ""
    password: str = ""
    token: Callable[[], str] | None = None
    lifetime_seconds: float = 60.0  # after which a client fetches another token


def confluent_settings(bootstrap: str, login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": login.mechanism,
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    if login.token is None:
        return {**settings, "sasl.username": login.user, "sasl.password": login.password}
    token = login.token
    return {**settings, "oauth_cb": lambda _: (token(), time.time() + login.lifetime_seconds)}


def confluent(bootstrap: str, login: Login, topic: str) -> bytes:
    """confluent-kafka: write one message and return it as it was read."""
    errors: list[Any] = []
    settings = {**confluent_settings(bootstrap, login), "error_cb": errors.append}
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, b"from confluent-kafka")
    _until(lambda: producer.flush(0.1) == 0, errors)
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": f"{topic}-confluent", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    try:
        _until(lambda: _polled(consumer, found), errors)
    finally:
        consumer.close()
    return bytes(found[0].value())


def _polled(consumer: confluent_kafka.Consumer, found: list[Any]) -> bool:
    record = consumer.poll(0.2)
    if record is not None and record.error() is None:
        found.append(record)
    return bool(found)


def _until(is_done: Callable[[], bool], errors: list[Any]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_done():
        failed = [one for one in errors if one.code() == confluent_kafka.KafkaError._AUTHENTICATION]
        if failed:
            raise Refused(failed[0].str())
        assert time.monotonic() < deadline, f"not done in time: {errors}"


def kcat(bootstrap: str, login: Login, topic: str) -> bytes:
    """kcat, the command."""
    common = ["-b", bootstrap, "-X", "security.protocol=SASL_PLAINTEXT"]
    common += ["-X", f"sasl.mechanism={login.mechanism}", "-X", f"sasl.username={login.user}"]
    common += ["-X", f"sasl.password={login.password}"]
    _kcat([*common, "-P", "-t", topic], b"from kcat\n")
    return _kcat([*common, "-C", "-t", topic, "-o", "beginning", "-c", "1", "-q"]).rstrip(b"\n")


def _kcat(arguments: list[str], given: bytes = b"") -> bytes:
    # Without a limit, kcat would try again until a message has expired, after five minutes.
    limits = ["-m", "3", "-X", "message.timeout.ms=3000"]
    done = subprocess.run(
        ["kcat", *limits, *arguments],
        input=given,
        capture_output=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    text = done.stderr.decode()
    if "Authentication failure" in text or "SASL" in text:
        raise Refused(text)
    assert done.returncode == 0, text
    return done.stdout


class _AioToken(AioTokenProvider):
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token()


def aiokafka(bootstrap: str, login: Login, topic: str) -> bytes:
    """aiokafka."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return asyncio.run(asyncio.wait_for(_aiokafka(bootstrap, login, topic), SECONDS_MAX))


async def _aiokafka(bootstrap: str, login: Login, topic: str) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": login.mechanism,
    }
    if login.token is None:
        settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    else:
        settings["sasl_oauth_token_provider"] = _AioToken(login.token)
    producer = AIOKafkaProducer(**settings)
    try:
        await producer.start()
    except Exception as error:
        await producer.stop()
        raise Refused(f"{type(error).__name__}: {error}") from error
    await producer.send_and_wait(topic, b"from aiokafka")
    await producer.stop()
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        return bytes((await consumer.getone()).value)


class _Token(AbstractTokenProvider):
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def token(self) -> str:
        return self._token()


def kafka_python(bootstrap: str, login: Login, topic: str) -> bytes:
    """kafka-python."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": login.mechanism,
    }
    if login.token is None:
        settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    else:
        settings["sasl_oauth_token_provider"] = _Token(login.token)
    try:
        producer = kafka.KafkaProducer(**settings, bootstrap_timeout_ms=500)
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error
    producer.send(topic, b"from kafka-python").get(SECONDS_MAX)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=int(SECONDS_MAX * 1000), **settings
    )
    try:
        return bytes(next(consumer).value)
    finally:
        consumer.close()


CLIENTS = {
    "confluent-kafka": confluent,
    "kcat": kcat,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}
