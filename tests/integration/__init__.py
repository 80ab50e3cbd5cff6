"""GoQueue as its users meet it: real processes, stock Kafka clients, real sockets and disks.

Most tests share one node and keep apart by topic and group names. Those that stop, kill or
configure a node start their own. Nothing waits by sleeping: see `waiting.eventually`.

The same tests describe Apache Kafka. `GOQUEUE_TEST_BOOTSTRAP=host:port` runs those on the shared
node against any Kafka cluster, and `GOQUEUE_TEST_PEER=kafka` starts Apache Kafka wherever a test
starts a node; so a failure is a difference from Kafka, and not an opinion about it.

They describe a cluster too: `GOQUEUE_TEST_PEER=cluster`, or `make test-cluster`, starts three nodes
wherever a test starts one. What can only be true of one node is marked `single_node`, and why.
"""
