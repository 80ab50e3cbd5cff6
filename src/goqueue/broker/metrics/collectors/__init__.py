"""Collectors: each reads the state of some rooms into the samples of a scrape.

They yield after each partition, group or lane, so that a scrape can be divided into slices. State
may change in between, so they iterate over copies of what may grow.
"""
