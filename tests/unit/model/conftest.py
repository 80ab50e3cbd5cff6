"""The decoders of records, of which there are three where there are a compiler and numpy."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest

from goqueue.model import batch, columns, decode_reference

DECODERS = [pytest.param(decode_reference, id="plain")]
if importlib.util.find_spec("numpy") is not None:
    vectors = importlib.import_module("goqueue.model.decode_vectors")
    DECODERS.append(pytest.param(vectors, id="vectors"))
if importlib.util.find_spec("goqueue.model._decode") is not None:
    DECODERS.append(pytest.param(importlib.import_module("goqueue.model._decode"), id="compiled"))


@pytest.fixture(scope="session", params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Each of the decoders, by itself; that with numpy takes few records too."""
    module: ModuleType = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RECORDS_MIN", 1, raising=False)
        yield module


@pytest.fixture(scope="module")
def each_decoder(decoder: ModuleType) -> Iterator[None]:
    """Each of the decoders in turn is the one that this process uses."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (batch, columns):
            patch.setattr(module, "decoder", decoder)
        yield
