"""The gate: the one way from a front end into the broker.

Every operation of a broker is a method of an area (`areas/`). A call passes the same steps whatever
front end it comes from: authorise, find the node that must answer, perform there, report to the
observer.

- `operation.py`: how operations are declared, the table of all of them, the steps of a call.
- `forwarding.py`: the node that must answer, and how a call gets there.
- `grants.py`: the hot paths, produce and fetch, whose access is checked once per identity.
- `views.py`: what front ends see of live objects.
"""

from goqueue.broker.gate.gate import Gate

__all__ = ["Gate"]
