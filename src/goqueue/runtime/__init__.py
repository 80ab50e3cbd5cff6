"""The real clock, disk and sockets, and the wiring of a process.

The only room that reads a clock, opens a socket or starts a thread. It decides nothing about
messages.
"""
