"""Spark as a user with few rights: of a tenant, or with rules for one topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from goqueue.client import ClientSettings, LogClient, SaslSettings
from goqueue.client.http import Client
from tests.integration.security.secured import ADMIN, ADMIN_PASSWORD
from tests.integration.security.tenants import TENANTS, TenantsBroker, login_of

MESSAGES = 40
COPIES = ("copies", "streamed")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantsBroker]:
    made = TenantsBroker(tmp_path_factory.mktemp("tenants"))
    try:
        made.start()
        yield made
    finally:
        made.close()


class Job:
    """Spark with the login of a user."""

    def __init__(self, spark: SparkSession, node: TenantsBroker, user: str, password: str) -> None:
        self._spark = spark
        self._access = {
            "kafka.bootstrap.servers": node.bootstrap,
            "username": user,
            "password": password,
        }

    def table(self, **options: str) -> DataFrame:
        return self._spark.read.format("goqueue").options(**self._access, **options).load()

    def values(self, topic: str) -> list[str]:
        found = self.table(subscribe=topic).selectExpr("cast(value as string)").collect()
        return sorted(row[0] for row in found)

    def copy(self, source: str, target: str) -> None:
        """Copy values in a batch."""
        values = self.table(subscribe=source).select("value")
        sink = values.write.format("goqueue").options(**self._access)
        sink.option("topic", target).mode("append").save()

    def stream(self, source: str, target: str, folder: Path) -> None:
        """Copy values with a streaming query."""
        rows = self._spark.readStream.format("goqueue").options(**self._access)
        values = rows.options(subscribe=source, startingOffsets="earliest").load().select("value")
        sink = values.writeStream.format("goqueue").options(**self._access, topic=target)
        sink = sink.option("checkpointLocation", str(folder)).trigger(availableNow=True)
        sink.start().awaitTermination()


def fill(node: TenantsBroker, user: str, password: str, topic: str, text: str) -> None:
    login = ClientSettings(sasl=SaslSettings("SCRAM-SHA-512", user, password))
    with LogClient(node.bootstrap, login) as client:
        for name in (topic, *COPIES):
            client.topics.create(name, partition_count=2)
        with client.producer() as producer:
            for number in range(MESSAGES):
                producer.send(topic, f"{text} {number}".encode(), partition=number % 2)


def numbered(text: str) -> list[str]:
    return sorted(f"{text} {number}" for number in range(MESSAGES))


def test_each_tenant_reads_and_writes_topics_of_the_same_names(
    spark: SparkSession, node: TenantsBroker, tmp_path: Path
) -> None:
    jobs = {tenant: Job(spark, node, *login_of(tenant)) for tenant in TENANTS}
    for tenant, job in jobs.items():
        fill(node, *login_of(tenant), "orders", tenant)
        assert job.values("orders") == numbered(tenant)
        job.copy("orders", "copies")
        job.stream("orders", "streamed", tmp_path / tenant)
    for tenant, job in jobs.items():
        for topic in COPIES:
            assert job.values(topic) == numbered(tenant)
        everything = job.table(subscribePattern=".*")
        assert everything.count() == 3 * MESSAGES
        found = {row.topic for row in everything.select("topic").distinct().collect()}
        assert found == {"orders", *COPIES}


def test_topics_of_another_tenant_do_not_exist(spark: SparkSession, node: TenantsBroker) -> None:
    login = ClientSettings(sasl=SaslSettings("SCRAM-SHA-512", *login_of("acme")))
    with LogClient(node.bootstrap, login) as client:
        client.topics.create("secret")
    job = Job(spark, node, *login_of("other"))
    refusals = []
    for topic in ("secret", "never-made"):
        with pytest.raises(Exception, match=topic) as refused:
            job.table(subscribe=topic).count()
        refusals.append(str(refused.value).replace(topic, "TOPIC"))
    assert refusals[0] == refusals[1]
    with pytest.raises(Exception, match="~acme~secret"):
        job.table(subscribe="~acme~secret").count()


def test_a_user_with_rights_to_some_topics_needs_no_others(
    spark: SparkSession, node: TenantsBroker, tmp_path: Path
) -> None:
    fill(node, ADMIN, ADMIN_PASSWORD, "plain", "of all")
    node.create_user("reader", "planted-reader-passw0rd")
    with Client(node.http, username=ADMIN, password=ADMIN_PASSWORD) as api:
        api.topics.create("private")
    node.cli("acl", "create", "--allow", "reader", "--action", "READ", "--topic", "plain")
    for name in COPIES:
        node.cli("acl", "create", "--allow", "reader", "--producer", "--topic", name)
        node.cli("acl", "create", "--allow", "reader", "--action", "READ", "--topic", name)
    transactions = ("--transactional-id", "__query~", "--prefixed")
    job = Job(spark, node, "reader", "planted-reader-passw0rd")
    assert job.values("plain") == numbered("of all")
    with pytest.raises(Exception, match="WRITE on transactional ids that begin with '__query~'"):
        job.copy("plain", "copies")
    node.cli("acl", "create", "--allow", "reader", "--action", "WRITE", *transactions)
    job.copy("plain", "copies")
    job.stream("plain", "streamed", tmp_path / "reader")
    for topic in COPIES:
        assert job.values(topic) == numbered("of all")
    with pytest.raises(Exception, match="private"):
        job.table(subscribe="private").count()
