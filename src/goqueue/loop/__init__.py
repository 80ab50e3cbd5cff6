"""Promises, timers and the environment: what the core has instead of an event loop of its own.

Time, threads and other nodes are small protocols here (`clock.Clock`, `peers.Peers`), real in
`runtime` and simulated in tests. The room knows nothing about messages.
"""
