"""The audit log: who did what to what, from where, allowed or denied.

Offers the events, merging of repeated ones, a bounded queue, and their text in the Open
Cybersecurity Schema Framework (OCSF). It writes nothing and has no clock: `broker/audit` does.
"""
