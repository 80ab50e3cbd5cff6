"""The schema registry with its topic `__schemas`, and validation of records against schemas.

`goqueue.schemas` implements the schema languages and their compatibility rules; this room persists
and replicates the registered schemas.
"""
