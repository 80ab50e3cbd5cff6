"""Front ends: each folder speaks one protocol and calls the broker.

A front end translates. Bytes become values in its codec, values become calls in its handlers, and
nothing here decides what a queue does.
"""
