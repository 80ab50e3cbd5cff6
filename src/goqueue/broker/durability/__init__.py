"""Group commit: one round of syncing makes everything durable that was written before it.

It offers the flusher, which resolves waiting writers, and keeps the commit journal and the side
files of logs up to date in the background. The bytes are opaque here.
"""
