"""Group commit: one round of syncing makes everything durable that was written before it.

It offers the flusher, which resolves waiting writers, and keeps the commit journal and the files
beside a log up to date in the background. It does not know what the bytes mean.
"""
