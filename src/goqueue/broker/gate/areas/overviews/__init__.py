"""Areas for people who look at a whole cluster: lists with figures, and the recent past.

They answer with what the nodes have that can be reached, and say which those are.
"""
