"""The same shop with the client of GoQueue: each step and its acknowledgement are one transaction.

python examples/order_processing/goqueue_shop.py [HOST:PORT]
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from goqueue import Client, Outgoing, ReceivedMessage

ORDERS = 3


def charge(client: Client) -> None:
    """Charge each order; its shipment and its acknowledgement count together."""
    orders = client.queue("orders", group="charging")
    left = ORDERS
    while left:
        for message in orders.receive(10, wait=5):
            if message.text == "2" and message.attempt == 1:
                orders.nack(message, delay=0.5)  # the bank is busy
                continue
            with client.transaction() as transaction:
                transaction.publish("shipments", message.value, key=message.key)
                transaction.publish("surveys", message.value, delay=3600)  # in an hour
                transaction.ack(message)
            print(f"charged order {message.text} at attempt {message.attempt}", flush=True)
            left -= 1


def ship(client: Client) -> None:
    """Ship what is paid."""
    worker = client.consumer("shipments", group="shipping", concurrency=2)
    shipped: list[str] = []

    @worker.handler
    def handle(message: ReceivedMessage) -> None:
        shipped.append(message.text)
        print(f"shipped order {message.text}", flush=True)
        if len(shipped) == ORDERS:
            worker.stop()

    worker.run()


def main(address: str) -> None:
    with Client(address) as client, ThreadPoolExecutor() as pool:
        for topic in ("orders", "shipments", "surveys"):
            client.topics.create(topic)
        client.publish_many("orders", [Outgoing(str(one + 1)) for one in range(ORDERS)])
        charging = pool.submit(charge, client)
        ship(client)
        charging.result()
        print(f"{client.schedules.count(topic='surveys')} surveys wait")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
