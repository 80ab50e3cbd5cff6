"""Queue names, URLs and ARNs.

A URL is `http://HOST/ACCOUNT/NAME`. A node has one region, and each tenant has one account.
Requests that name another one are refused: there, a queue of that name would be a different queue.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from goqueue.wire.sqs.errors import (
    AccessDenied,
    InvalidAddress,
    InvalidParameterValue,
    MissingParameter,
    QueueDoesNotExist,
    SignatureDoesNotMatch,
)

ACCOUNT_LENGTH = 12
FIFO_SUFFIX = ".fifo"
NAME_LENGTH_MAX = 80
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT_AND_NAME = re.compile(r"(?:.*/)?(\d{12})/[^/]+")
_ARN = re.compile(r"arn:[a-z-]+:sqs:([a-z0-9-]*):(\d{12}):([A-Za-z0-9_.-]{1,80})")


class Site(NamedTuple):
    """The region of a node, and the account of a tenant."""

    region: str
    account: str
    is_of_tenant: bool = False  # other accounts are those of other tenants

    def check_region(self, region: str) -> None:
        """Refuse a request that is signed for another region."""
        if region and region != self.region:
            raise SignatureDoesNotMatch(
                f"Credential should be scoped to a valid region, not '{region[:50]}': this node "
                f"serves {self.region}. Use that region, or change the setting sqs.region."
            )

    def check_account(self, account: str | None) -> None:
        if account and account != self.account and self.is_of_tenant:
            raise AccessDenied("Access to the resource is denied: it belongs to another account.")
        if account and account != self.account:
            raise InvalidAddress(
                f"Account {account[:50]} is not served here: this node has the account "
                f"{self.account}. Use that account, or change the setting sqs.account_id."
            )

    def name_of_url(self, url: str | None) -> str:
        """The name of the queue in a URL; a plain name is accepted too."""
        if not url:
            raise MissingParameter("QueueUrl")
        path = url.partition("?")[0].rstrip("/")
        found = _ACCOUNT_AND_NAME.fullmatch(path)
        if found is not None:
            self.check_account(found[1])
        name = path.rpartition("/")[2]
        if not name:
            raise QueueDoesNotExist
        return name

    def name_of_arn(self, arn: str) -> str | None:
        """The name of the queue in an ARN; None if it is of another region or account."""
        found = _ARN.fullmatch(arn)
        if found is None or found[2] != self.account or found[1] not in ("", self.region):
            return None
        return found[3]

    def arn_of(self, name: str) -> str:
        return f"arn:aws:sqs:{self.region}:{self.account}:{name}"


def check_name(name: str | None, *, is_fifo: bool) -> str:
    """Validate the name of a new queue."""
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


def name_of_arn(arn: str) -> str | None:
    """The name in the ARN of a queue; None if it is not an ARN of a queue."""
    found = _ARN.fullmatch(arn)
    return found[3] if found else None
