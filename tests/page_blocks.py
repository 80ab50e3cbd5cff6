"""Which test runs which block of the documentation.

The first rule that fits a block names the module that runs it, `PARSED` for what cannot run on such
a machine and is only checked to be well formed, or `SHOWN` for what is no code.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.pages import ROOT, Block, blocks

PARSED = "parsed"
SHOWN = "shown"
RUN_HERE = "tests/integration/test_page_blocks.py"


class Rule(NamedTuple):
    """The blocks of pages in these languages, and with this in their text."""

    pages: str
    languages: str
    runner: str
    reason: str = ""  # why they are not run
    contains: str = ""

    def fits(self, page: str, block: Block) -> bool:
        return (
            fnmatch.fnmatchcase(page, self.pages)
            and block.language in self.languages.split()
            and re.search(self.contains, block.text, re.MULTILINE) is not None
        )


NO_SPARK_CLUSTER = "needs a cluster of Spark; the same pipelines run in tests/e2e/test_pipelines.py"
RULES = (
    # Pages of which one test runs all.
    Rule("README.md", "sh python console", "tests/integration/test_readme.py"),
    Rule("docs/tutorials/09-spark.md", "python text console", "tests/e2e/test_tutorial_spark.py"),
    Rule(
        "docs/tutorials/10-cluster.md",
        "sh python text console",
        "tests/integration/test_tutorial_cluster.py",
    ),
    *(
        Rule(pages, "sh python text console", "tests/integration/test_tutorials.py")
        for pages in ("docs/tutorials/*", "docs/how-to/*", "docs/start/*")
    ),
    Rule("docs/walkthrough.md", "sh python text console", "tests/e2e/test_walkthrough.py"),
    Rule("docs/client.md", "python", "tests/integration/test_client_docs.py"),
    Rule("docs/backup.md", "sh text", "tests/integration/test_backup_docs.py"),
    Rule("docs/security.md", "sh", "tests/integration/security/test_security_page.py"),
    Rule(
        "docs/security/clients.md",
        "python",
        "tests/e2e/test_secured_page.py",
        contains="goqueue.spark",
    ),
    Rule(
        "docs/security/clients.md",
        "sh shell python properties java",
        "tests/integration/security/test_clients_page.py",
    ),
    Rule("docs/spark.md", "py", "tests/e2e/test_spark_queue.py"),
    Rule("docs/spark.md", "python", "tests/e2e/test_docs.py"),
    Rule("docs/spark-pipelines.md", "python", "tests/e2e/test_pipelines.py"),
    # Pages with several tests.
    Rule("docs/sqs.md", "python", "tests/integration/test_sqs_docs.py"),
    Rule("docs/sqs.md", "sh", "tests/integration/test_sqs_docs.py", contains="aws --endpoint"),
    Rule("docs/grpc.md", "sh python", "tests/integration/rpc/test_grpc_docs.py"),
    Rule("docs/journeys.md", "python", "tests/integration/test_journeys_docs.py"),
    Rule("docs/cluster.md", "sh", "tests/integration/test_cluster_tls.py", contains="openssl"),
    # What cannot run here.
    Rule(
        "docs/cluster.md",
        "sh",
        PARSED,
        "replaces a voter that is lost for good; tests/simulation/test_cluster_formation.py does",
        contains="voters remove",
    ),
    Rule(
        "docs/grpc.md",
        "shell",
        PARSED,
        "needs Go and Node; a program in Python of the same form runs in the tests",
        contains="examples/grpc",
    ),
    Rule("docs/deploy.md", "sh", PARSED, "needs Docker", contains="docker"),
    Rule("docs/deploy.md", "sh", PARSED, "needs Kubernetes", contains="helm"),
    Rule("docs/deploy.md", "sh", PARSED, "changes the machine", contains="useradd"),
    Rule("docs/deploy.md", "sh", PARSED, "needs an account of AWS", contains=r"tf\.sh"),
    Rule("docs/spark-pipelines.md", "sh", PARSED, NO_SPARK_CLUSTER),
    Rule("docs/spark.md", "sh", PARSED, "installs", contains="pip install"),
    Rule("docs/faults.md", "sh", PARSED, "runs for many minutes; the nightly workflow runs it"),
    Rule("docs/console.md", "console", PARSED, "needs a desktop, or takes minutes"),
    Rule("docs/monitoring.md", "sh", PARSED, "runs until it is stopped", contains="make cluster"),
    Rule(
        "docs/security/audit.md",
        "python",
        PARSED,
        "needs Spark; the view is tested in tests/e2e/test_audit.py",
    ),
    Rule(
        "docs/security/*",
        "sh",
        PARSED,
        "needs the tools of Apache Kafka; tests/judge compares their requests",
        contains="kafka-configs",
    ),
    Rule(
        "docs/security/authentication-kafka.md",
        "sh",
        PARSED,
        "needs a certificate; kcat runs with the same options in docs/security/clients.md",
        contains="^kcat",
    ),
    # Queries and commands of runbooks name what exists; they are for clusters that have failed.
    Rule("docs/runbooks/*", "sh promql", "tests/unit/monitoring/test_runbooks.py"),
    # Everything else runs.
    *(
        Rule(pages, "sh shell console python yaml properties", RUN_HERE)
        for pages in (
            *("docs/http.md", "docs/kafka.md", "docs/registry.md", "docs/monitoring.md"),
            *("docs/cluster.md", "docs/sqs.md", "docs/grpc.md", "docs/journeys.md"),
            *("docs/spark.md", "docs/metrics.md", "docs/settings.md", "docs/security/*"),
        )
    ),
    Rule("*", "json", PARSED, "is an answer, or a body"),
    Rule("*", "text mermaid", SHOWN),
)


def pages() -> list[Path]:
    """All pages whose blocks must have a rule; the generated reference has none."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "adr" not in page.relative_to(ROOT).parts]


def rule_of(page: Path, block: Block) -> Rule | None:
    name = page.relative_to(ROOT).as_posix()
    return next((rule for rule in RULES if rule.fits(name, block)), None)


def blocks_of(page: Path, runner: str) -> list[Block]:
    """The blocks of a page that a runner has to run."""
    every = blocks(page.read_text(encoding="utf-8"))
    return [
        one for one in every if (rule := rule_of(page, one)) is not None and rule.runner == runner
    ]


def assigned() -> Iterator[tuple[Path, Block, Rule | None]]:
    for page in pages():
        for block in blocks(page.read_text(encoding="utf-8")):
            yield page, block, rule_of(page, block)
