"""Schemas of records: which there are, how they may change, and whether a record obeys its own.

A registry promises that what a producer writes today can be read by those who were written
yesterday. This room keeps that promise: `formats` knows the three languages of schemas and their
rules of evolution, the registry keeps subjects, versions and ids. It never reads a record's place
in a log, and never asks the network for a schema.
"""
