"""The gate: the one way from a front end into the broker.

Every operation of a broker is a method of an area of the gate. A call passes the same steps
whatever front end it comes from: authorise, find the node that must answer, perform there, report
to the observer. The table of all operations is `operation.OPERATIONS`.
"""

from goqueue.broker.gate.gate import Gate

__all__ = ["Gate"]
