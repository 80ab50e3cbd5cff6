"""Named queues: a topic and a queue group under one name, with attributes and deduplication.

It adds what a queue service needs beyond queue groups: create, send once per deduplication id,
count, and move messages from one queue to another.
"""
