"""Runs of small batches, handled by the compiled functions where they could be built."""

from __future__ import annotations

from goqueue.model.run_reference import Span

try:
    from goqueue.model._runs import gather_run, is_plain

    IS_COMPILED = True
except ImportError:  # There was no compiler where GoQueue was installed.
    from goqueue.model.run_reference import gather_run, is_plain

    IS_COMPILED = False

__all__ = ["IS_COMPILED", "Span", "gather_run", "is_plain"]
