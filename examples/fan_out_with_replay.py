"""Fan-out with replay: each service has all events, and a service that lost its data reads again.

python examples/fan_out_with_replay.py [HOST:PORT]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from goqueue import Client, Outgoing, ReceivedMessage

PRODUCTS = [("1", "red lamp"), ("2", "oak chair"), ("1", "green lamp")]  # the first was changed


def main(address: str) -> None:
    with Client(address) as client:
        client.topics.create("products")
        client.groups.put_queue("search", {"key_order": True})  # so that the newest text wins
        client.publish_many("products", [Outgoing(text, key=key) for key, text in PRODUCTS])

        mails: list[str] = []
        handle_all(client, "mail", lambda message: mails.append(message.text))
        print(f"{len(mails)} mails")

        index: dict[bytes, str] = {}

        def put(message: ReceivedMessage) -> None:
            index[message.key or b""] = message.text

        handle_all(client, "search", put)
        print(f"the index has {sorted(index.values())}")

        index.clear()  # the disk of the search service is gone
        client.queue("products", group="search").rewind("earliest")
        handle_all(client, "search", put)
        print(f"rebuilt: {sorted(index.values())}")
        print(f"mails are not sent again: {client.groups.lag('mail').lag} to send")


def handle_all(client: Client, group: str, handle: Callable[[ReceivedMessage], None]) -> None:
    """Handle what is there for a group, in order."""
    consumer = client.consumer("products", group=group, concurrency=1)
    left = len(PRODUCTS)

    @consumer.handler
    def one(message: ReceivedMessage) -> None:
        nonlocal left
        handle(message)
        left -= 1
        if not left:
            consumer.stop()

    consumer.run()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
