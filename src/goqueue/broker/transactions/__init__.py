"""Transactions: coordinators, participants, markers, and publishing inside a transaction.

`goqueue.transactions` holds the state machine; this room loads and drives it, writes markers to
all participants, and ends transactions that were left open.
"""
