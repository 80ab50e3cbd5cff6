"""Handles of message move tasks: opaque to clients, they contain the queue and the job."""

from __future__ import annotations

from base64 import b64decode, b64encode

import msgspec

from goqueue.wire.sqs.errors import InvalidParameterValue, MissingParameter


class _Handle(msgspec.Struct, rename="camel", frozen=True):
    task_id: str
    source_arn: str


def write_handle(source_arn: str, job_id: str) -> str:
    return b64encode(msgspec.json.encode(_Handle(job_id, source_arn))).decode("ascii")


def read_handle(text: str | None) -> tuple[str, str]:
    """Decode a handle: the ARN of the queue, and the id of the job."""
    if not text:
        raise MissingParameter("TaskHandle")
    try:
        handle = msgspec.json.decode(b64decode(text, validate=True), type=_Handle)
    except (msgspec.DecodeError, ValueError):
        raise InvalidParameterValue("Value for parameter TaskHandle is invalid.") from None
    return handle.source_arn, handle.task_id
