"""HTTP and JSON: everything that GoQueue can do, for anyone who can send a request.

`operations` is the one table of routes: the router, the OpenAPI document and the tests are made
from it. `bodies` holds the structs that cross the boundary, and `handlers` turns them into calls on
the broker; `wire/carrier` reads requests and writes answers. Handlers wait for promises of the
broker, so this room needs no event loop, and nothing here decides what a queue does.
"""
