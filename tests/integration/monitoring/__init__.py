"""Metrics of real nodes, held against what real clients counted."""
