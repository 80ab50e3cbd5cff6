"""Dead letters and redrives: jobs that bring dead letters back to the topics they came from.

A letter is brought back exactly once, whatever crashes meanwhile. Putting messages into dead-letter
topics is the business of `queues`.
"""
