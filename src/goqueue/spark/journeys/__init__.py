"""The journal of journeys as a table: one row for each event of a range of messages.

It offers the view `journeys` of the data source: its columns and its options. Records are read as
those of any topic; their encoding is that of `goqueue.tracing`.
"""
