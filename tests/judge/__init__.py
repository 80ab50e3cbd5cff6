"""Apache Kafka as the judge: the same requests are sent to it and to GoQueue, and compared.

`cases.py` holds the requests and what of each answer counts. `python -m tests.judge` starts both
brokers and compares them; with `--record` it writes what Kafka answered to `answers.json`, against
which the unit tests compare GoQueue without Kafka.
"""
