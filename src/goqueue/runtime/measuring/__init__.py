"""Metrics of the process, its event loop and its listeners, and their export to a collector."""
