"""Runs of small batches, handled by the compiled functions if they were built."""

from __future__ import annotations

from goqueue.model.run_reference import Mark, Piece, Spans

try:
    from goqueue.model._runs import are_plain, gather_run, mark_run

    IS_COMPILED = True
except ImportError:  # There was no compiler where GoQueue was installed.
    from goqueue.model.run_reference import are_plain, gather_run, mark_run

    IS_COMPILED = False

__all__ = ["IS_COMPILED", "Mark", "Piece", "Spans", "are_plain", "gather_run", "mark_run"]
