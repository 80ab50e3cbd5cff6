"""Joins the rooms: topics, partitions, groups, upkeep. The only API a front end calls.

It knows no protocol. It takes time, threads and randomness from a scheduler and a generator it is
given, so that a whole broker runs under a virtual clock.
"""

from goqueue.broker.broker import Broker

__all__ = ["Broker"]
