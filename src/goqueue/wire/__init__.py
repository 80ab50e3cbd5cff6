"""Front ends: each folder implements one protocol and calls the broker through the gate.

A front end only translates: its codec turns bytes into values, its handlers turn values into calls.
It contains no queue logic.
"""
