"""Deployments, run as far as one machine without a container engine can."""
