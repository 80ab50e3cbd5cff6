"""The structs of requests and responses, one module for each area of the API."""
