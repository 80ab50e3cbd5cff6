"""Dead letters and redrives: jobs that move dead letters back to the topics they came from.

A letter is moved back exactly once, also across crashes. Writing messages to dead-letter topics is
done in `queues`.
"""
