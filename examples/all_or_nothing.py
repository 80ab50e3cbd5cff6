"""A transaction: a basket becomes a shipment and an invoice, or nothing happens at all.

python examples/all_or_nothing.py [HOST:PORT]
"""

from __future__ import annotations

import sys

from goqueue import Client


class PrinterJammed(Exception):
    """Anything that goes wrong half-way."""


def main(address: str) -> None:
    with Client(address) as client:
        for topic in ("baskets", "shipments", "bills"):
            client.topics.create(topic)
        client.publish("baskets", "two chairs", key="customer-9")
        baskets = client.queue("baskets", group="checkout")

        [message] = baskets.receive(1, wait=5)
        try:
            with client.transaction() as transaction:
                transaction.publish("shipments", message.value, key=message.key)
                transaction.ack(message)
                raise PrinterJammed("no bill, no shipment")
        except PrinterJammed as error:
            print(f"aborted ({error}): {count(client, 'shipments')} shipments")

        [message] = baskets.receive(1, wait=5)  # it comes again, because its ack never counted
        with client.transaction() as transaction:
            transaction.publish("shipments", message.value, key=message.key)
            transaction.publish("bills", "120.00", key=message.key)
            transaction.ack(message)
        print(
            f"committed at attempt {message.attempt}: {count(client, 'shipments')} shipment, "
            f"{count(client, 'bills')} bill, {len(baskets.receive(1))} baskets left"
        )


def count(client: Client, topic: str) -> int:
    """Messages that a reader sees: those of transactions that were committed."""
    return sum(1 for _ in client.read(topic))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
