"""Share groups: queue groups whose members fetch from the leaders of partitions.

Three nodes take part, which may be the same one: the coordinator of the group's name has its
members (`members`), the owner of the group leases records and settles them (`leasing`), and the
leader of a partition sends the records from its own log (`serving`). What is leased, retried and
dead-lettered is decided in `queues`; client protocols and their sessions are outside the scope.
"""
