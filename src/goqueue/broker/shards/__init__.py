"""What coordinators share: their internal topics, and who leads the partitions of these.

Groups, transactions, queues, schedules and schemas keep their state in internal topics. This room
creates those topics, starts and stops coordinators with leadership, and reads back what the broker
wrote last. It does not interpret the records of a coordinator.
"""
