"""The Kafka protocol: requests of stock Kafka clients, and the responses they expect.

`primitives` reads and writes the wire types, `messages` has the generated structs and codecs of
every API, `api` describes an API and its versions, `headers` the headers of requests and responses,
`connection` the state of one connection, and `handlers` one function per API. It decides nothing
itself: handlers call the gate.
"""
