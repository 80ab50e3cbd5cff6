"""A stream group: members share the partitions, and commit how far they are.

python examples/stream_totals.py [HOST:PORT]
"""

from __future__ import annotations

import sys
from collections import Counter

from goqueue import Client, Outgoing

SALES = [("Oslo", 3), ("Lima", 5), ("Oslo", 4), ("Kyoto", 1), ("Lima", 2), ("Oslo", 1)]


def main(address: str) -> None:
    with Client(address) as client:
        client.topics.create("sales", partitions=3)
        client.publish_many("sales", [Outgoing(str(count), key=city) for city, count in SALES])

        totals: Counter[str] = Counter()
        with client.stream_consumer("sales", group="totals", auto_commit=False) as consumer:
            seen = 0
            while seen < len(SALES):
                messages = consumer.poll(wait=5)
                for message in messages:
                    totals[(message.key or b"").decode()] += int(message.text)
                seen += len(messages)
                consumer.commit()  # after a crash, the group goes on behind these
        for city, count in totals.most_common():
            print(f"{city}: {count}")
        print(f"left to read: {client.groups.lag('totals').lag}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
