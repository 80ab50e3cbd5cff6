"""Fails unless every compiled module of the installed GoQueue can be imported.

Without a compiler an install goes on without them, so only this shows that a wheel has them all.
"""

from __future__ import annotations

from importlib import import_module

COMPILED_MODULES = (
    "goqueue.model._decode",
    "goqueue.model._encode",
    "goqueue.model._runs",
    "goqueue.model.scanning._scan",
    "goqueue.runtime._turns",
    "goqueue.wire.kafka._requests",
)

if __name__ == "__main__":
    for name in COMPILED_MODULES:
        import_module(name)
    print(f"{len(COMPILED_MODULES)} compiled modules")
