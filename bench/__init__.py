"""How fast one node is, against what the machine and other systems do in the same run.

`python -m bench` starts the broker, drives it with stock Kafka clients and with load generators of
its own, and prints a table. A machine has good and bad minutes, so no figure stands alone: the
broker, the limit and the peer take turns, and the ratio is what counts. A run that lost, failed or
repeated a message is void, whatever its speed.

Nothing here is imported by the broker, and nothing here imports it: a broker is a process with an
address, so that any system that speaks Kafka can take its place.
"""
