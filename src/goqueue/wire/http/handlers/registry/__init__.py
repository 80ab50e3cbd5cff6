"""Handlers of the schema registry: subjects and their versions, and settings."""
