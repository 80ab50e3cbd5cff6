"""The broker: joins topics, groups, queues, schedules and transactions into one node.

Front ends call it through `gate` alone. It knows no protocol. The clock and the random generator
are passed in, so that a whole broker runs under a virtual clock.
"""

from goqueue.broker.broker import Broker

__all__ = ["Broker"]
