"""The real clock, disk and sockets, and the wiring of a process.

The only package that reads a clock, opens a socket or starts a thread. It contains no message
logic.
"""
