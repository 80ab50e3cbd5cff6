"""The HTTP/1.1 transport of front ends: connections, requests, routes, error responses.

`connection` takes bytes and returns responses in order, within limits on both. `application` finds
the operation of a request in the table of a front end, calls its handler and encodes the result. A
front end whose clients expect other formats than JSON and problem details provides a dialect. The
operations themselves are defined by the front ends.
"""
