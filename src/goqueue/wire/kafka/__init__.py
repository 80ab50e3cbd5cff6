"""The Kafka protocol: what stock Kafka clients send to a broker and expect back.

`primitives` reads and writes the wire types, `messages` holds the generated structs and codecs of
every API, `api` describes an API and its versions, and `headers` frames requests and responses.
"""
