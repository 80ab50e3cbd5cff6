"""A worker: handle each message once, try again what fails, give up what cannot succeed.

python examples/queue_worker.py [HOST:PORT]

Stop it with Ctrl-C or SIGTERM: handlers finish, their acks are sent, the rest is given back.
"""

from __future__ import annotations

import json
import sys

from goqueue import Client, Outgoing, ReceivedMessage, Reject, Retry


def main(address: str) -> None:
    with Client(address) as client:
        client.topics.create("invoices", partitions=2)
        client.publish_many(
            "invoices",
            [
                Outgoing(json.dumps({"number": 1, "total": 12})),
                Outgoing(json.dumps({"number": 2, "total": 30}), priority="critical"),
                Outgoing("this is not an invoice"),
                Outgoing(json.dumps({"number": 3, "total": 5})),
            ],
        )

        consumer = client.consumer("invoices", group="billing", concurrency=4)
        booked: list[int] = []

        @consumer.handler
        def book(message: ReceivedMessage) -> None:
            try:
                invoice = message.json()
            except ValueError as error:
                raise Reject("not an invoice") from error  # to the dead letters
            if invoice["number"] == 3 and message.attempt == 1:
                raise Retry("the ledger is locked", after=0.2)  # again in a moment
            booked.append(invoice["number"])  # returning acknowledges the message
            print(f"booked invoice {invoice['number']} at attempt {message.attempt}", flush=True)
            if len(booked) == 3:
                consumer.stop()

        tally = consumer.run()
        print(f"{tally.acked} acknowledged, {tally.nacked} tried again, {tally.rejected} rejected")
        [letter] = client.dead_letters("invoices").list_page().letters
        print(f"dead: {letter.text!r} because {letter.reason}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
