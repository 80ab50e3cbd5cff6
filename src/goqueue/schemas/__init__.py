"""Schemas of records: the registry, compatibility rules, and validation of records.

A registry guarantees that what a producer writes today can be read by consumers written yesterday.
This room implements that guarantee: `formats` has the three schema languages and their rules of
evolution, the registry has subjects, versions and ids. It never uses a record's position in a log,
and never fetches a schema from the network.
"""
