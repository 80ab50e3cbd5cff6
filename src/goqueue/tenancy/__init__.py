"""Tenancy: who clients are, what they may do, and how much of it.

Offers pure functions and state machines: passwords and SCRAM conversations, API keys and access
keys, access control lists, quotas. It stores nothing and knows no connection: users and rules are
metadata of the cluster, and `broker` joins the two.
"""
