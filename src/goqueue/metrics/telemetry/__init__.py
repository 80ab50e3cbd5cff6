"""Metrics that clients report of themselves (KIP-714): who may report when, and what it adds up to.

A client asks which metrics are wanted, and then pushes them in an interval. This room decides about
each request and keeps the last report of every client. It decodes nothing of the client protocol
and exports no names of clients.
"""
