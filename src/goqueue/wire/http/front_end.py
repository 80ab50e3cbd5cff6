"""The state that all requests of the HTTP API share."""

from __future__ import annotations

from goqueue.wire.carrier.front_end import CarriedFrontEnd


class FrontEnd(CarriedFrontEnd):
    """The gate behind the API, and the document that describes it."""

    document: bytes | None = None  # the OpenAPI document, made at the first request for it
