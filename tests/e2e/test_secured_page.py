"""Spark with TLS and credentials: the code of docs/security/clients.md, and what Spark shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue import Client
from goqueue.client import ClientSettings, LogClient, SaslSettings, TlsSettings
from tests.integration.security.encrypted import EncryptedBroker
from tests.integration.security.pages import ANN_PASSWORD, Block, blocks, prepare, run

MESSAGES = 50
# What follows the block of the page in the same session: streams, a queue, wrong credentials, and
# everything that Spark shows of it.
MORE = """
def stream(name, options):
    rows = spark.readStream.format("goqueue").options(**options).load()
    query = (
        rows.writeStream.format("parquet").option("path", f"{name}.out")
        .option("checkpointLocation", f"{name}.checkpoint").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    print(json.dumps(query.lastProgress, default=str))
    return spark.read.schema(rows.schema).parquet(f"{name}.out").count()

everything = {"startingOffsets": "earliest", "subscribe": "orders"}
print("stream:", stream("stream", {**kafka, **everything, "group": "shown"}))
servers = {"kafka.bootstrap.servers": kafka["kafka.bootstrap.servers"]}
print("queue:", stream("queue", {**servers, **ours, "subscribe": "letters", "queue.group": "work"}))
wrong = {**servers, **ours, "apiKey": None, "username": "ann", "password": "wrong-one"}
wrong = {name: one for name, one in wrong.items() if one}
for options in (wrong, {**kafka, "kafka.security.protocol": "PLAINTEXT"}):
    try:
        spark.read.format("goqueue").options(**options).option("subscribe", "orders").load().count()
    except Exception as error:
        print("refused:", str(error).replace("Traceback", "Trace"))
frame = spark.read.format("goqueue").options(**ours, **servers).option("subscribe", "orders").load()
frame.createOrReplaceTempView("secured")
spark.sql("explain extended select * from secured").show(truncate=False)
print(spark.sparkContext.getConf().toDebugString())
spark.stop()
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[EncryptedBroker]:
    (tmp_path / "node").mkdir()
    made = EncryptedBroker(tmp_path / "node")
    try:
        made.start()
        yield made
    finally:
        made.close()


def fill(node: EncryptedBroker, folder: Path) -> str:
    """Create the user, its key, the topics and messages; the key."""
    prepare(folder, node)
    node.run("user", "create", "ann", "--password-file", str(folder / "ann.password"))
    key, _ = node.run("key", "create", "ann", "-o", "json")
    (folder / "ann.key.json").write_text(key)
    with LogClient(node.bootstrap, settings_of(node)) as client:
        for topic in ("orders", "copies", "letters"):
            client.topics.create(topic, partition_count=2)
        with client.producer() as producer:
            for number in range(MESSAGES):
                for topic in ("orders", "letters"):
                    producer.send(topic, b"%d" % number, partition=number % 2)
    secret: str = json.loads(key)["secret"]
    return secret


def test_spark_reads_and_writes_with_credentials(node: EncryptedBroker, tmp_path: Path) -> None:
    key = fill(node, tmp_path)
    with api_of(node, key) as api:
        api.groups.put_queue("work", {})
    (block,) = [one for one in blocks() if one.section == "Spark"]
    whole = Block(block.section, block.line, block.language, block.text + MORE)
    printed = run(whole, node, tmp_path)
    lines = printed.splitlines()
    assert lines.count(str(MESSAGES)) == 1, printed[-4000:]  # the copies
    assert f"stream: {MESSAGES}" in lines
    assert f"queue: {MESSAGES}" in lines
    refused = [line for line in lines if line.startswith("refused: ")]
    assert len(refused) == 2
    assert "refused the credentials of user 'ann'" in printed
    for secret in (ANN_PASSWORD, key, "wrong-one"):
        assert secret not in printed, next(line for line in lines if secret in line)
    # The driver has shown the progress, and acknowledged the last epoch.
    with api_of(node, key) as api:
        stats = api.queue("letters", group="work").stats()
        assert (stats.ready, stats.in_flight) == (0, 0)
    with LogClient(node.bootstrap, settings_of(node)) as client:
        shown = client.groups.committed("shown", client.partitions(["orders"]))
        assert sum(one.offset for one in shown.values()) == MESSAGES


def test_a_pipeline_uses_the_login_of_the_command(node: EncryptedBroker, tmp_path: Path) -> None:
    fill(node, tmp_path)
    login = {"GOQUEUE_USER": "ann", "GOQUEUE_PASSWORD": ANN_PASSWORD}
    done, _ = node.run(
        *("pipeline", "run", "replay", "--topic", "orders", "--to", "copies", "--run", "first"),
        *("--state", str(tmp_path / "state"), "--master", "local[1]", "-o", "json"),
        **login,
    )
    assert json.loads(done)["copied"] == MESSAGES
    noted = b"".join(one.read_bytes() for one in (tmp_path / "state").rglob("*") if one.is_file())
    assert ANN_PASSWORD.encode() not in noted


def settings_of(node: EncryptedBroker) -> ClientSettings:
    return ClientSettings(
        tls=TlsSettings(node.ca_file), sasl=SaslSettings("SCRAM-SHA-512", "ann", ANN_PASSWORD)
    )


def api_of(node: EncryptedBroker, key: str) -> Client:
    return Client(node.http, api_key=key, ca_file=node.ca_file)
