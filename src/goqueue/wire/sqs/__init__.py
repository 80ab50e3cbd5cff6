"""The API of Amazon SQS, in both of its protocols, so that its SDKs work unchanged.

`shapes` is the table of the inputs and outputs of all actions, from which the codecs of the JSON
and the older Query protocol are derived. `dialect` decodes requests and encodes responses, and
`handlers` calls the gate. This package only translates: queues, leases and deduplication are
implemented in the broker.
"""
