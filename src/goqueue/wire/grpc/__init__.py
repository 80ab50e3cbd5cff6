"""The gRPC front end: `goqueue.v1` in `proto/`, on the server of grpcio in the node's event loop.

Handlers translate messages into calls of the gate, a batch at a time; what they do is the gate's
business. The library costs memory, so nothing here is imported before the first client connects,
except `messages/`, which the client shares.
"""
