"""Topics as Spark streams: micro-batches of offset ranges.

`reader` implements Spark's stream reader, `offsets` the position in the checkpoint, `admission` how
much of the backlog a micro-batch takes, and `progress` publishes the position as a group. Offsets
committed to the broker are for display; a query resumes from its checkpoint alone.
"""
