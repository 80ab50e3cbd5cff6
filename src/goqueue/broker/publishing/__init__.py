"""Publishing: routes records to partitions, in batches, wherever those are led.

It publishes single records for front ends without batches, and splits a producer's batch into the
records due now and those to schedule. It does not read.
"""
