"""Publishing: records on their way into partitions, in batches, to whoever leads them.

It offers publishing of single records for front ends without batches, and the split of a producer's
batch into what is due now and what is scheduled. It does not read.
"""
