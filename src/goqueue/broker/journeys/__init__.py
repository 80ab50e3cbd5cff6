"""Journeys: writes what happens to messages to the internal topic `__journeys`.

Offers an observer, the recorder, which is called within the turn of what it observes and only
queues. Events are written in the background, by the leaders of the partitions of `__journeys`, of
which each accepts the events of a source exactly once and in order (`shards`). What a crash, or a
journal that was away, has lost of them is derived again from the logs of the sources (`recovery`).

It never delays or refuses a call, and its memory is bounded.
"""
