"""Servers that speak SQS, as the benchmark of that front end knows them."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Protocol


class SqsPeer(Protocol):
    """A running server that boto3 can be pointed to."""

    version: str

    @property
    def endpoint(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def serves(endpoint: str) -> bool:
    """Whether a server answers a request, whatever it answers."""
    try:
        with urllib.request.urlopen(f"{endpoint}/?Action=ListQueues&Version=2012-11-05", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
