"""Browsing a topic: messages from either end, with conditions, as a stream that ends.

A request scans a bounded number of bytes, shows its progress, and ends with a cursor for the next
one. Nothing is scanned ahead of the client, nor after it has disconnected.
"""
