"""Queries of journeys as clients see them: lists, pages, cursors, and views in a tenant's names.

Finding events in the journal is the task of `broker.journeys`; what a caller sees is decided here.
"""
