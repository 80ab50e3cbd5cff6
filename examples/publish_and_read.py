"""Publish messages and read them again: by place, by time, and as they come.

python examples/publish_and_read.py [HOST:PORT]
"""

from __future__ import annotations

import sys
from datetime import timedelta

from goqueue import Client, Outgoing


def main(address: str) -> None:
    with Client(address) as client:
        client.topics.create("visits", partitions=3)

        # One message; the answer comes when it is durable.
        published = client.publish("visits", "hello", key="customer-7")
        print(f"stored as {published.id}")

        # Many, in one request, each with what it needs.
        client.publish_many(
            "visits", [Outgoing(f"visit {n}", key=f"customer-{n}") for n in range(9)]
        )

        # Very many, in the background: `send` gives a future, leaving the block waits for all.
        with client.producer() as producer:
            futures = [producer.send("visits", f"click {n}") for n in range(1000)]
        print(f"stored {sum(future.result().offset is not None for future in futures)} clicks")

        # Everything of the last hour, oldest first, whatever the partition.
        reader = client.read("visits", from_=timedelta(hours=1))
        first = next(reader)
        print(f"first: {first.text!r} of {(first.key or b'').decode()}")

        # A reader's place is a short text. Another reader, another day, goes on there.
        rest = client.read("visits", cursor=reader.cursor)
        print(f"and {sum(1 for _ in rest)} more")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
