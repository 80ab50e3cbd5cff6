"""Order processing with Celery, on the SQS listener of GoQueue or on AWS.

SHOP_SQS=127.0.0.1:9324 celery -A celery_shop worker --pool solo
SHOP_SQS=127.0.0.1:9324 python celery_shop.py 3

Without SHOP_SQS the queues are those of AWS. That is the whole move.
"""

from __future__ import annotations

import os
import sys

from celery import Celery

app = Celery("celery_shop")  # as the module, so that tasks have the same names in both programs
app.conf.task_default_queue = "shop"
app.conf.task_acks_late = True  # a task whose worker dies runs again
app.conf.worker_enable_remote_control = False  # it needs SNS
app.conf.broker_transport_options = {"region": "us-east-1", "wait_time_seconds": 5}
if "SHOP_SQS" in os.environ:
    app.conf.broker_url = f"sqs://any:any@{os.environ['SHOP_SQS']}"
    app.conf.broker_transport_options["is_secure"] = False
else:
    app.conf.broker_url = "sqs://"


class CardRefused(Exception):
    """The bank does not answer, or says no."""


@app.task(bind=True, max_retries=3)
def charge(self, order: int) -> None:
    """Charge the card, and go on with the shipment."""
    try:
        if order == 2 and self.request.retries == 0:
            raise CardRefused(f"the bank is busy for order {order}")
    except CardRefused as error:
        raise self.retry(exc=error, countdown=1) from error
    print(f"charged order {order}")
    # If the worker dies here, the order is charged twice or never shipped: see goqueue_shop.py.
    ship.delay(order)


@app.task
def ship(order: int) -> None:
    print(f"shipped order {order}")


if __name__ == "__main__":
    for number in range(1, int(sys.argv[1]) + 1):
        charge.delay(number)
