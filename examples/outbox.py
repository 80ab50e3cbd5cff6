"""The outbox pattern: what a database commits is published exactly once, also after crashes.

python examples/outbox.py [HOST:PORT]

A service writes an order and its event into one database transaction. A relay publishes the events
in order. How far it is, it publishes in the same transaction as the events, so that both count or
neither does. The database never needs to know what was published.
"""

from __future__ import annotations

import json
import sqlite3
import sys

from goqueue import Client

BATCH = 2


class PowerCut(Exception):
    """Whatever may end the relay in the middle of a transaction."""


def place_order(database: sqlite3.Connection, item: str) -> None:
    """Store an order and the event about it, or neither."""
    with database:
        order = database.execute("INSERT INTO orders (item) VALUES (?)", (item,)).lastrowid
        event = json.dumps({"order": order, "item": item})
        database.execute("INSERT INTO outbox (event) VALUES (?)", (event,))


def relay(client: Client, database: sqlite3.Connection, *, fails_at: int | None = None) -> int:
    """Publish the events after the last published one; return how many those were."""
    published = 0
    at = position(client)
    query = "SELECT id, event FROM outbox WHERE id > ? ORDER BY id LIMIT ?"
    while rows := database.execute(query, (at, BATCH)).fetchall():
        # The name fences a second relay that was started by mistake.
        with client.transaction("outbox-relay") as transaction:
            for number, event in rows:
                transaction.publish("order-events", event, key=str(json.loads(event)["order"]))
                if number == fails_at:
                    raise PowerCut(f"power cut at event {number}")
            at = rows[-1][0]
            transaction.publish("outbox-position", str(at), key="relay")
        published += len(rows)
    return published


def position(client: Client) -> int:
    """The number of the last event that was published in a committed transaction."""
    places = [int(message.text) for message in client.read("outbox-position")]
    return places[-1] if places else 0


def main(address: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    database.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, event TEXT)")
    with Client(address) as client:
        client.topics.create("order-events")
        # Only the newest position is needed.
        client.topics.create("outbox-position", settings={"cleanup_policy": "compact"})
        for item in ("lamp", "chair", "kettle", "atlas", "violin"):
            place_order(database, item)
        try:
            relay(client, database, fails_at=4)
        except PowerCut as error:
            print(f"{error}: {seen(client)}")
        print(f"after the restart {relay(client, database)} more: {seen(client)}")
        print(f"again, and nothing is left: {relay(client, database)}")


def seen(client: Client) -> str:
    """The orders whose events readers see."""
    events = [message.json()["order"] for message in client.read("order-events")]
    return ", ".join(map(str, events))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
