"""The structs that cross the boundary, one module for each area of the API."""
