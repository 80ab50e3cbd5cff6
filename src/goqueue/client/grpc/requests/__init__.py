"""The calls of each area of the gRPC API, in the form of the requests of the HTTP API."""
