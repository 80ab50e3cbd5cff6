"""Backups in a folder: their layout, creating them incrementally, verifying and reading them.

A backup is a manifest and the objects that it names. Objects are batches of a partition as the
broker stores them, or the metadata of a cluster; they are never changed, and named so that an equal
name means equal content. A manifest is written last, atomically: without it there is no backup.
What stores files by name (`store`) can take that of the folder.

Nothing here decides what is consistent (the broker takes the cut), or writes the data of a node.
"""
