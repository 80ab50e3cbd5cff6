"""Topics as Spark tables and streams.

    import goqueue.spark

    spark = goqueue.spark.session()
    spark.read.format("goqueue").option("subscribe", "orders").load()

Depends on the client and on the batch decoder, and on nothing inside the broker. Spark is an extra:
`pip install goqueue[spark]`.
"""

from goqueue.spark.predicates import ranges, read_where
from goqueue.spark.session import enable, session

__all__ = ["enable", "ranges", "read_where", "session"]
