"""Queue groups as Spark streams: a micro-batch is a set of messages that a group delivered.

`reader` implements Spark's stream reader, `epochs` receives the messages of an epoch in a prepared
transaction of the broker, `listener` acknowledges them when Spark has committed the epoch, and
`tasks` reads them by their offsets. The checkpoint decides which messages an epoch contains
(`offsets`). It does not read a queue as a table: a batch query has no commit to acknowledge after.
"""
