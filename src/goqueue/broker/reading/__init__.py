"""Reading: fetches for stream consumers, records one by one, and reads from other nodes.

It never passes the high watermark, or the last stable offset where a reader asks for committed
records only. It holds no state of consumers.
"""
