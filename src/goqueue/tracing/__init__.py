"""Journeys: what happened to each message, as events about ranges of offsets.

An event says what happened to the messages of one partition in a range of offsets, when, on which
node, and for which group or client. The node where it happened writes it to the internal topic
`__journeys`; the journey of a message is the sequence of the events whose ranges contain it. This
room has the events and their encoding. It reads and writes no log.
"""
