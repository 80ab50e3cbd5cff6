"""Builders of requests, one class per area of the API; they send nothing."""
