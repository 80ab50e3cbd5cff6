"""Backups: where to cut the logs of a running cluster, what they contain, and writing them back.

A backup is the metadata and, for each partition, its batches up to an offset, the cut. The cuts of
all partitions are taken in an order (`cutting`), so that the whole can be opened as the logs of a
node that has crashed. `reading` returns the batches, `restoring` writes a new data folder from
them, `fencing` ends what producers had begun. Nothing here knows where a backup is stored.
"""
