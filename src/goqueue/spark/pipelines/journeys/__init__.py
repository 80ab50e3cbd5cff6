"""The pipeline `journeys`: what became of messages, and how long it took.

It reads the journal of journeys once. Events are about ranges of offsets, and so is everything
here: `sweeping` divides each partition where an event begins or ends, and sums up which events
cover each part; `accounting` says what became of the messages of each part in each group,
`latencies` how long each hop took, `schedules` how late scheduled messages were. No message
becomes a row of its own. `running` joins them, `results` is what is kept of a run, and `page` is
its part of the report.
"""
