"""Headers that name the trace of a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.metrics.traces import HEADER_BYTES_MAX, sampled_trace

TRACE = "5759e988bd862e3fe1be46a994272793"
PARENT = f"00-{TRACE}-53995c3f42cd8ad8"
ROOT = "Root=1-5759e988-bd862e3fe1be46a994272793"


@pytest.mark.parametrize(
    "header",
    [
        f"{PARENT}-01",
        f" {PARENT}-03 ",
        f"{PARENT.replace('00-', 'cc-', 1)}-01-what-may-come",
        f"{ROOT};Parent=53995c3f42cd8ad8;Sampled=1",
        f"Sampled=1; {ROOT}",
        f"Self=1-67891234-12456789abcdef012345678; {ROOT}; Sampled=1",
    ],
)
def test_the_trace_of_a_sampled_request_is_found(header: str) -> None:
    assert sampled_trace(header.encode()) == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"{PARENT}-00",
        f"{PARENT}-02",
        f"{PARENT.upper()}-01",
        f"ff{PARENT[2:]}-01",
        f"00-{'0' * 32}-53995c3f42cd8ad8-01",
        f"00-{TRACE}-{'0' * 16}-01",
        ROOT,
        f"{ROOT};Sampled=0",
        f"Not{ROOT};Sampled=1",
        "Sampled=1",
        f"{PARENT}-01-" + "x" * HEADER_BYTES_MAX,
    ],
)
def test_what_is_not_sampled_or_not_valid_has_no_trace(header: str) -> None:
    assert not sampled_trace(header.encode())


@given(st.binary())
def test_any_bytes_are_read(header: bytes) -> None:
    assert len(sampled_trace(header)) in (0, 32)
