"""A Celery application on SQS. Worker processes load it by name; its tasks note that they ran.

It is told by the environment where SQS is and where to take notes.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kombu.transport.SQS
from celery import Celery
from celery.signals import before_task_publish

ENDPOINT = "GOQUEUE_TEST_CELERY_SQS"
NOTES = "GOQUEUE_TEST_CELERY_NOTES"
TASK = "note"
VISIBILITY_SECONDS = 3


def make_app(endpoint: str) -> Celery:
    """An application whose tasks are in the SQS at this endpoint."""
    made = Celery("notes")
    made.conf.update(
        broker_url=f"sqs://testing:testing@{urlsplit(endpoint).netloc}",
        broker_transport_options={
            "region": "us-east-1",
            "is_secure": False,
            "visibility_timeout": VISIBILITY_SECONDS,
            "wait_time_seconds": 2,
            "polling_interval": 0.1,
        },
        broker_connection_retry_on_startup=True,
        task_acks_late=True,  # A task is done when it ran, and not when it was received.
        worker_enable_remote_control=False,  # That would need SNS.
    )
    made.task(note, name=TASK)
    return made


def note(text: str) -> None:
    """Write a line to the notes."""
    with Path(os.environ[NOTES]).open("a") as notes:
        notes.write(f"{text}\n")


def wait_at_the_broker() -> None:
    """Let tasks with an ETA wait in their queue, however long, instead of in a worker.

    A worker that holds a task until its time loses it to another one whenever its visibility
    ends, and there it begins to wait again. The setting `sqs.long_delays` lets the queue hold it.
    """
    kombu.transport.SQS.MAX_DELAY_SECONDS = 10 * 366 * 24 * 3600
    before_task_publish.connect(_delay_until_eta, weak=False)


def _delay_until_eta(headers: dict[str, Any], properties: dict[str, Any], **_: Any) -> None:
    if headers.get("eta"):
        left = datetime.fromisoformat(headers["eta"]) - datetime.now(UTC)
        properties["DelaySeconds"] = max(0, ceil(left.total_seconds()))
        headers["eta"] = None


wait_at_the_broker()
if ENDPOINT in os.environ:
    app = make_app(os.environ[ENDPOINT])
