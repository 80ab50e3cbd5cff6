"""Queue groups: receiving, settling, retries, dead-lettering, rewinds; journaled in `__delivery`.

`goqueue.delivery` decides what is delivered to whom; this room reads the records, persists the
decisions and lets receivers wait. It does not know named queues, or any queue protocol.
"""
