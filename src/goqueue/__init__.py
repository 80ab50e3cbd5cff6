"""GoQueue: one durable, partitioned log that streams, queues and tables share."""
