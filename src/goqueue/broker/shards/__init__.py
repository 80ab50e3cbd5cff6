"""What coordinators share: internal topics, and the leadership of their partitions.

Groups, transactions, queues, schedules and schemas keep their state in internal topics. This
package starts and stops coordinators with leadership, reads back what the broker wrote last, and
moves messages exactly once. It does not interpret the records of a coordinator.
"""
