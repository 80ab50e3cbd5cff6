"""Writing to topics from Spark: each job, or each epoch of a stream, appears at once, exactly once.

`writers` implements Spark's writers on the driver, `tasks` writes the rows of one task in a
prepared transaction, `row_batches` packs them into record batches, `rows` maps columns to records,
and `options` reads the options. A table with a column that a message does not have is refused.
"""
