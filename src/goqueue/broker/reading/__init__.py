"""Reading: fetches for stream consumers, records one by one, and reads from other nodes.

It never reads past the high watermark, or past the last stable offset for readers of committed
records only. It holds no consumer state.
"""
