"""Builders of requests, one class for each area of the API; they send nothing themselves."""
