"""Shared nouns: offsets, topics, partitions, record batches, and the error tree.

Every room may import this one, and it imports none. It handles bytes, not disks or sockets.
"""
