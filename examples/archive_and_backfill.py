"""Archive a topic with Spark, analyse its whole history, and backfill a new service from it.

python examples/archive_and_backfill.py [HOST:PORT] [FOLDER]

The topic keeps a day, the archive keeps everything: `archive` adds what is new, and can run every
hour. A service that comes later gets the history by `replay`, exactly once, and goes on with the
topic. Needs `pip install goqueue[spark]` and Java 17 or newer; the folder may be on shared storage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count
from pyspark.sql.functions import sum as total

import goqueue.spark
from goqueue.client import LogClient
from goqueue.spark import pipelines

ORDERS, COPY = "shop-orders", "shop-orders-for-billing"
PRICE = {"lamp": 40, "chair": 75}


def main(bootstrap: str, folder: str) -> None:
    spark = goqueue.spark.session("local[2]")
    archive = f"{folder}/orders"
    with LogClient(bootstrap) as client:
        client.topics.create(ORDERS, partition_count=2)
        client.topics.create(COPY, partition_count=4)
        place_orders(client, ["lamp"] * 300)
        print(f"archived {archived(spark, bootstrap, archive)} orders")
        place_orders(client, ["chair"] * 100)
        print(f"archived {archived(spark, bootstrap, archive)} more")
        place_orders(client, ["chair"] * 20)  # what the archive does not have yet

    history = whole_history(spark, bootstrap, archive)
    for row in turnover(history).orderBy("product").collect():
        print(f"{row.product}: {row.orders} orders, {row.turnover}")

    # The run has a name: if it is killed, call it again, and it goes on where it was.
    done = pipelines.replay(spark, bootstrap, COPY, run_id="billing", archive=archive)
    print(f"backfilled {done.copied} orders, {done.verified} verified")
    again = pipelines.replay(spark, bootstrap, COPY, run_id="billing", archive=archive)
    print(f"called again: {again.copied} copied, {again.present} are there")
    spark.stop()


def place_orders(client: LogClient, products: Iterable[str]) -> None:
    with client.producer() as producer:
        for number, product in enumerate(products):
            value = b'{"product": "%s"}' % product.encode()
            producer.send(ORDERS, value, key=b"customer-%d" % (number % 7))


def archived(spark: SparkSession, bootstrap: str, archive: str) -> int:
    """Append what is new to the archive; how many records that was."""
    done = pipelines.archive(spark, bootstrap, [ORDERS], archive)
    return 0 if done.manifest is None else done.manifest.digest.records


def whole_history(spark: SparkSession, bootstrap: str, archive: str) -> DataFrame:
    """The archive, and from the topic only what the archive does not have."""
    columns = ["partition", "offset", "value"]
    old = pipelines.read_archive(spark, archive).select(columns)
    live = (
        spark.read.format("goqueue")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ORDERS)
        .load()
        .select(columns)
    )
    return old.unionByName(live.join(old, ["partition", "offset"], "left_anti"))


def turnover(orders: DataFrame) -> DataFrame:
    """Orders and turnover by product."""
    prices = orders.sparkSession.createDataFrame(list(PRICE.items()), ["product", "price"])
    return (
        orders.selectExpr("get_json_object(cast(value as string), '$.product') as product")
        .join(prices, "product")
        .groupBy("product")
        .agg(count("*").alias("orders"), total("price").alias("turnover"))
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else "127.0.0.1:9092", given[1] if len(given) > 1 else "/tmp/archive")
