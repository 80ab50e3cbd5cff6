"""Promises, timers and the environment: what the core uses instead of an event loop of its own.

Time, threads and other nodes are small protocols here (`clock.Clock`, `peers.Peers`), with real
implementations in `runtime` and simulated ones in tests. The room has no notion of messages.
"""
