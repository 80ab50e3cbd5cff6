"""The HTTP API: all operations of GoQueue as JSON over HTTP.

`operations` is the table of routes, from which the router, the OpenAPI document and the tests are
made. `bodies` holds the structs of requests and responses, and `handlers` turns them into calls of
the gate; `wire/carrier` reads requests and writes responses. Handlers wait for promises of the
broker, so this package needs no event loop, and it contains no queue logic.
"""
