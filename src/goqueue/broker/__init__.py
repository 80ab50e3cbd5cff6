"""Joins the parts of a node: topics, partitions, groups, maintenance. Front ends use its gate.

It is independent of protocols. Time, threads and randomness are passed in, so that a whole broker
runs under a virtual clock.
"""

from goqueue.broker.broker import Broker

__all__ = ["Broker"]
