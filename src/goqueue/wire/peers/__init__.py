"""The peer protocol: a node calls another, which responds in any order.

This package authenticates nodes and moves frames between them. Messages are encoded by their
senders.
"""
