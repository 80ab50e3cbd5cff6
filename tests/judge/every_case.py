"""The cases of all modules."""

from __future__ import annotations

from tests.judge import config_cases, share_cases, streams_cases
from tests.judge.cases import CASES, DIFFERENCES

__all__ = ["CASES", "DIFFERENCES", "config_cases", "share_cases", "streams_cases"]
