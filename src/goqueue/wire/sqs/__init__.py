"""The API of Amazon SQS: both of its protocols, so that its SDKs work unchanged.

`shapes` is the one table of what actions take and give; the codecs of JSON and of the older Query
protocol are made from it. `handlers` turns it into calls on the broker, `dialect` reads requests
and writes answers. This room is translation: queues, leases and deduplication are the broker's.
"""
