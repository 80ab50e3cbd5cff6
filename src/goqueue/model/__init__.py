"""Shared nouns: offsets, topics, partitions, record batches, and the error tree.

Everything may import this room and it imports nobody. It knows bytes, not disks or sockets.
"""
