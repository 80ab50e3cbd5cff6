"""Queue groups: receiving, settling, retries, dead-lettering, rewinds; journaled in `__delivery`.

`goqueue.delivery` decides which messages are delivered; this room reads the records, persists the
decisions and lets receivers wait. Named queues and queue protocols are outside its scope.
"""
