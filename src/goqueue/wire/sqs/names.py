"""Queues by name, address and ARN.

An address is `http://HOST/000000000000/NAME`. There is one account; addresses and ARNs that name
another one are understood all the same, so that programs which know a queue by them need no change.
"""

from __future__ import annotations

import re

from goqueue.wire.sqs.errors import InvalidParameterValue, MissingParameter, QueueDoesNotExist

ACCOUNT = "000000000000"
FIFO_SUFFIX = ".fifo"
NAME_LENGTH_MAX = 80
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ARN = re.compile(r"arn:[a-z-]+:sqs:[a-z0-9-]*:\d{12}:([A-Za-z0-9_.-]{1,80})")


def check_name(name: str | None, *, is_fifo: bool) -> str:
    """The name of a queue that is to be made."""
    if not name:
        raise MissingParameter("QueueName")
    has_suffix = name.endswith(FIFO_SUFFIX)
    plain = name.removesuffix(FIFO_SUFFIX)
    is_valid = bool(_NAME.fullmatch(plain)) and len(name) <= NAME_LENGTH_MAX
    if is_fifo and not (is_valid and has_suffix):
        raise InvalidParameterValue(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length."
        )
    if not is_fifo and (not is_valid or has_suffix):
        raise InvalidParameterValue(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    return name


def name_of_url(url: str | None) -> str:
    """The name of the queue that an address means; the name alone will do too."""
    if not url:
        raise MissingParameter("QueueUrl")
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    if not name:
        raise QueueDoesNotExist
    return name


def name_of_arn(arn: str) -> str | None:
    """The name of the queue that an ARN means; None if it is no ARN of a queue."""
    found = _ARN.fullmatch(arn)
    return found[1] if found else None


def url_of(name: str, base_url: str) -> str:
    return f"{base_url}/{ACCOUNT}/{name}"


def arn_of(name: str, region: str) -> str:
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{name}"
