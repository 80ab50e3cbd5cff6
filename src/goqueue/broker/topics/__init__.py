"""Topics and their open partitions: creation, settings, files, compaction, retention.

It offers `Topics`, the one place where a partition is found. It has no information about who leads
a partition, nor who reads or writes it.
"""
