"""Users, keys and rules of access, as the broker uses them.

Joins the metadata, which has them, with `tenancy`, which knows how to check them. `identities.py`
has users and their credentials, `access.py` access control lists and roles.
"""
