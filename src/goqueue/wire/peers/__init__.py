"""The protocol between nodes: one node calls another, which answers in any order.

This room moves frames and knows who speaks to whom. It does not know what is said: messages are
encoded by those who send them.
"""
