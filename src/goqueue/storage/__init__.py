"""One log on one disk: segments, indexes, recovery, retention, compaction.

This package stores batches in order and finds them again. Producers, access rights and replication
are outside of it; it does not look inside a batch except where maintenance of the log (time
look-ups, compaction) needs a record.
"""
