"""HTTP/1.1 as front ends are carried over it: connections, requests, routes, refusals.

`connection` takes bytes and gives answers in order, within limits on both. `application` finds the
operation of a request in a front end's table, has its handler called, here or on the node that
must answer (`forwarding`, `handover`), and writes what it says. A front end whose clients expect
other forms than JSON and problem details brings a dialect. What operations there are, and what
they do, is none of this room's business.
"""
