"""One log on one disk: segments, indexes, recovery, retention, compaction.

This room keeps batches in order and finds them again. It does not know who wrote them, who may
read them or how far they are replicated; it refuses to look inside a batch except where the
log's own upkeep (time look-ups, compaction) needs a record.
"""
