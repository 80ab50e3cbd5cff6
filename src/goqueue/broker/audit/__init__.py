"""The audit log of a node: an observer that writes what happens to `__audit` and to a file.

Offers the observer, and reading of what was written. It never delays a call, and refuses nothing:
what cannot be written is counted.
"""
