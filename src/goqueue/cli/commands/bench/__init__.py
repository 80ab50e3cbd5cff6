"""`goqueue bench`: measure a running broker from where its clients are.

Messages are numbered, and what arrives is compared with what was acknowledged: a fast broker that
loses messages fails. The project's own benchmarks, with other brokers, are in `bench/`.
"""

from goqueue.cli.commands.bench.commands import app

__all__ = ["app"]
