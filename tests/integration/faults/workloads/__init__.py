"""Clients of every front end that go on whatever becomes of the nodes, and record what they saw."""
