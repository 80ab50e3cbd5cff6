"""The blocks of reference pages run on real nodes, in the order of their page.

A page has an entry here with what its reader is supposed to have, and what to do before some of its
commands. `tests/page_blocks.py` says which blocks these are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest
from typer.testing import CliRunner

from goqueue.cli.main import app
from goqueue.config import load
from tests.page_blocks import RUN_HERE, assigned, blocks_of
from tests.pages import ROOT, Block, Cell, Reader, blocks

from .cluster import Cluster
from .conftest import StartBroker
from .process import Broker

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.single_node("starts the nodes that its pages need"),
]

PATIENCE_SECONDS = 2  # for commands that run until they are stopped, such as those that follow
# A refusal must fail the page: curl alone takes any answer for a success.
PRELUDE = """
curl() { command curl --silent --show-error --fail-with-body --max-time 30 "$@"; }
endless() {
  local code=0
  timeout --foreground SECONDS "$@" || code=$?
  [ $code = 124 ] || return $code
}
export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any AWS_DEFAULT_REGION=us-east-1
""".replace("SECONDS", str(PATIENCE_SECONDS))
ENDLESS_CURL = "endless curl --silent --fail-with-body"
# A command without anything for a shell, but perhaps a comment.
PLAIN = re.compile(r"goqueue (?!top )[^|<>$;&#\n]*(?:#[^\n]*)?")
ENDLESS = re.compile(
    r"^(?:curl -N|goqueue top\b(?!.*--once)|goqueue trace follow|goqueue audit tail -f)"
)

USER = '{"type": "record", "name": "User", "fields": [%s]}'
NAME = '{"name": "name", "type": "string"}'
AGE = '{"name": "age", "type": ["null", "int"], "default": null}'
MAIL = '{"name": "mail", "type": "string", "default": ""}'


@dataclass(frozen=True)
class Page:
    """What a page needs to be followed."""

    files: Mapping[str, str] = field(default_factory=dict)
    before: str = ""  # commands that prepare the node
    # By a pattern in a command: other commands that its reader has run before it.
    hints: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    names: str = ""  # code before the first block of Python
    on_cluster: bool = False
    with_python: bool = False  # what another test runs must have happened before


PUBLISH = (
    "curl localhost:8080/v1/topics/orders/publish -H 'Content-Type: application/json' "
    """-d '{"value": "for the next one"}'"""
)
ORDERS = "goqueue topic create orders --if-not-exists"
LOCAL = {"https://queue.example:8080": "http://127.0.0.1:8080"}
PAGES = {
    "docs/http.md": Page(
        on_cluster=True,
        hints={
            "/receive|/poll": PUBLISH,
            "AZ4Q…/publish": "goqueue topic create mails --if-not-exists",
            "AZ5R…": """
id=$(curl localhost:8080/v1/transactions -H 'Content-Type: application/json' \\
  -d '{"transactional_id": "__query~totals~1~0~writer-b"}' | jq -r .id)
curl localhost:8080/v1/transactions/$id/publish -H 'Content-Type: application/json' \\
  -d '{"messages": [{"topic": "orders", "value": "two"}]}'
curl localhost:8080/v1/transactions/$id/prepare -H 'Content-Type: application/json' -d '{}'
echo "{\\"id\\":\\"$id\\",\\"producer_epoch\\":0}"
""",
        },
    ),
    "docs/kafka.md": Page(before=f"{ORDERS}\n{PUBLISH}", hints={"/receive": PUBLISH}),
    "docs/registry.md": Page(
        before=f"goqueue topic create users\n{ORDERS}",
        replaced={"topic create users": "topic create checked-users"},
        files={
            "user.avsc": USER % f"{NAME}, {AGE}",
            "newer.avsc": USER % f"{NAME}, {AGE}, {MAIL}",
            "users.jsonl": '{"name": "Bo", "age": null}\n',
            "order.proto": 'syntax = "proto3"; message Order { string id = 1; }',
        },
    ),
    "docs/monitoring.md": Page(files={"prometheus.password": "a long password"}),
    "docs/cluster.md": Page(
        on_cluster=True,
        before=f"{ORDERS}\ngoqueue cluster undrain 3",
    ),
    "docs/sqs.md": Page(
        before="goqueue user create seller --no-password",
        replaced={"key create billing": "key create seller"},
    ),
    "docs/grpc.md": Page(),
    "docs/journeys.md": Page(with_python=True),
    "docs/spark.md": Page(),
    "docs/metrics.md": Page(),
    "docs/settings.md": Page(),
    "docs/security/access-control.md": Page(before=ORDERS),
    "docs/security/audit.md": Page(
        files={"admin.password": "a long password"},
        before="goqueue user create admin --password-file admin.password",
        replaced={"-u admin ": "-u 'admin:a long password' "},
    ),
    "docs/security/authentication-http.md": Page(
        files={"alice.password": "a long password"},
        replaced={
            "user create alice ": "user create alice --password-file alice.password ",
            "KEY_ID": "$(goqueue key list billing -o json | jq -r '.[0].id')",
            "-u alice ": "-u 'alice:a long password' ",
            **LOCAL,
        },
        hints={
            "curl -u alice": "goqueue user enable alice\n"
            "KEY=$(goqueue key create alice -o json | jq -r .secret)",
        },
        names="import boto3",
    ),
    "docs/security/authentication-kafka.md": Page(
        names="""
from aiokafka import AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Producer

def token():
    return "header.claims.signature"

expires_at_seconds = 4_000_000_000
""",
    ),
    "docs/security/listeners.md": Page(),
    "docs/security/quotas.md": Page(
        before="goqueue tenant create umbrella", replaced={"--tenant acme": "--tenant umbrella"}
    ),
    "docs/security/tenants.md": Page(
        files={"acme.password": "a long password"},
        replaced={"create acme-admin ": "create acme-admin --password-file acme.password "},
        hints={"~acme~orders": "goqueue tenant create acme\ngoqueue topic create '~acme~orders'"},
    ),
}


class Follower:
    """Follows a page at certain nodes."""

    def __init__(
        self,
        page: Page,
        home: Path,
        addresses: Mapping[str, str],
        acts: Mapping[str, Callable[[], None]],
    ) -> None:
        self._page = page
        self._acts = acts
        self._home = home
        for name, text in page.files.items():
            (home / name).write_text(text, encoding="utf-8")
        self._reader = Reader(home, addresses)
        self._receipts: list[str] = []
        self._transactions: list[str] = []
        self._shell(PRELUDE)
        self._shell(page.before)
        if page.names:
            self._reader.run(Cell(0, "python", page.names, ""))

    def close(self) -> None:
        self._reader.close()

    def run(self, block: Block) -> None:
        if block.language == "yaml":
            self._configuration(block.text)
        elif block.language == "python":
            self._python(block)
        elif block.language == "console":
            for command, printed in transcript(block.text):
                self._command(command, printed)
        elif block.language == "properties":
            assert all("=" in line for line in block.text.splitlines())
        else:
            for command in commands(block.text):
                self._command(command)

    def _shell(self, text: str) -> str:
        return self._reader.run(Cell(0, "console", text, "")) if text.strip() else ""

    def _command(self, command: str, expected: str = "") -> None:
        for pattern, hint in self._page.hints.items():
            if re.search(pattern, command):
                self._note(self._shell(hint))
        self._act(command)
        printed = self._run(self._meant(command))
        if self._page.on_cluster:  # It has more nodes than the page shows.
            printed = "".join(printed.splitlines(keepends=True)[: expected.count("\n")] or printed)
        assert shape(expected).fullmatch(printed) or not expected.strip(), (
            f"{command}\nprinted\n{printed}\nunlike\n{expected}"
        )
        self._note(printed)

    def _act(self, code: str) -> None:
        for written, act in self._acts.items():
            if written in code:
                act()

    def _meant(self, command: str) -> str:
        """The command with the names, receipts and ids of this run."""
        for written, meant in self._page.replaced.items():
            command = command.replace(written, meant)
        if "receipts" in command or '"acks": ["…"]' in command:
            command = command.replace('["…"]', json.dumps(self._receipts[-1:]))
        for written, number in (("AZ4Q…", -1), ("AZ5R…", -2)):
            if written in command:
                command = command.replace(written, self._transactions[number])
        return command

    def _run(self, command: str) -> str:
        if "goqueue serve" in command:
            return self._shell(f"{command} --print-config")
        if "# refused" in command:
            return self._shell(f"! {{ {command}\n}} <<< y")
        if ENDLESS.match(command):
            command = in_terminal(command) if command.startswith("goqueue top ") else command
            return self._shell(f"endless {command}".replace("endless curl", ENDLESS_CURL))
        if PLAIN.fullmatch(command):
            return self._goqueue(command)
        return self._shell(command)

    def _goqueue(self, command: str) -> str:
        """Run the command in this process, which saves the time of its start."""
        words = shlex.split(self._reader.addressed(command), comments=True)[1:]
        environment = {
            "GOQUEUE_BOOTSTRAP": self._reader.addresses["127.0.0.1:9092"],
            "HOME": str(self._home),
            "COLUMNS": "160",
        }
        with contextlib.chdir(self._home):
            done = CliRunner().invoke(app, words, input="y\n", env=environment)
        assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception}"
        return done.output

    def _note(self, printed: str) -> None:
        """Keep the receipts and ids that later commands of the page use."""
        self._receipts += re.findall(r'"receipt": ?"([^"]+)"', printed)
        if '"producer_epoch"' in printed:
            self._transactions += re.findall(r'"id": ?"([^"]+)"', printed)

    def _python(self, block: Block) -> None:
        self._act(block.text)
        if "while True" in block.text:
            (self._home / "page.py").write_text(self._reader.addressed(block.text))
            printed = self._shell("endless python page.py")
            assert "Traceback" not in printed, printed
        elif "AIOKafka" in block.text:
            asyncio.run(self._inside_a_loop(block))
        else:
            self._reader.run(Cell(block.line, "python", block.text, ""))

    async def _inside_a_loop(self, block: Block) -> None:
        self._reader.run(Cell(block.line, "python", block.text, ""))

    def _configuration(self, text: str) -> None:
        """Load a file of settings; another YAML file is that of Prometheus."""
        if "scrape_configs" in text:
            return
        file = self._home / "goqueue.yaml"
        file.write_text(text, encoding="utf-8")
        load(environ={}, file=file)


def in_terminal(command: str) -> str:
    """The command with a terminal of its own."""
    return f"script --quiet --return --command {shlex.quote(command)} /dev/null"


def commands(text: str) -> Iterator[str]:
    """The commands of a block: lines, with those that continue them."""
    lines = iter(text.splitlines())
    for line in lines:
        whole = line
        while whole.endswith("\\") or whole.count("'") % 2:
            whole += "\n" + next(lines)
        if whole.strip() and not whole.startswith("#"):
            yield whole


def transcript(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def shape(expected: str) -> re.Pattern[str]:
    """What is printed, but for numbers, ids and the width of columns; `…` alone is any lines."""
    lines = []
    for line in expected.rstrip("\n").split("\n"):
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
            continue
        line = re.sub(r"(\d) (?:ms|s)\b", r"\1", line)
        words = [
            r"\S+(?: ms| s)?" if is_variable(word) else re.escape(word).replace("\\-", "-")
            for word in line.split()
        ]
        lines.append(r"\s*" + r"[ ]+".join(words) + r"[ ]*\n?")
    return re.compile("".join(lines) + r"\s*")


def is_variable(word: str) -> bool:
    """A number, a time, an address, an id, or what a node is to the others."""
    return (
        word in ("controller", "voter")
        or re.search(r"[\d…]", word) is not None
        or re.fullmatch(r"\w{14,}", word) is not None
    )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"security.audit": "on", "groups.initial_rebalance_delay_ms": 0}
    node = Broker(tmp_path_factory.mktemp("pages"), settings)
    try:
        node.start()
        yield node
    finally:
        node.close()


def addresses_of(node: Broker) -> dict[str, str]:
    http = node.http.removeprefix("http://")
    return {
        "127.0.0.1:9092": node.bootstrap,
        "localhost:9092": node.bootstrap,
        "127.0.0.1:8080": http,
        "localhost:8080": http,
        "10.0.0.1:8080": http,
        "127.0.0.1:8081": node.registry.removeprefix("http://"),
        "127.0.0.1:9324": node.sqs.removeprefix("http://"),
    }


def follow(
    name: str,
    home: Path,
    addresses: Mapping[str, str],
    acts: Mapping[str, Callable[[], None]] = MappingProxyType({}),
) -> None:
    """Run the blocks of a page; `acts` are what its reader does before certain commands."""
    page = PAGES[name]
    follower = Follower(page, home, addresses, acts)
    try:
        found = blocks_of(ROOT / name, RUN_HERE)
        if page.with_python:
            every = blocks((ROOT / name).read_text(encoding="utf-8"))
            found = [one for one in every if one.language == "python" or one in found]
        for block in found:
            try:
                follower.run(block)
            except Exception as failure:
                raise AssertionError(f"{name}, block of line {block.line}: {failure}") from failure
    finally:
        follower.close()


ALONE = [name for name, page in PAGES.items() if not page.on_cluster]


@pytest.mark.parametrize("name", [name for name in ALONE if not PAGES[name].with_python])
def test_the_blocks_of_the_page_run(name: str, node: Broker, tmp_path: Path) -> None:
    follow(name, tmp_path, addresses_of(node))


@pytest.mark.parametrize("name", [name for name in ALONE if PAGES[name].with_python])
def test_the_blocks_of_the_page_run_on_a_fresh_node(
    name: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    follow(name, home, addresses_of(start_broker()))


@pytest.fixture(scope="module")
def five_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    nodes = Cluster(tmp_path_factory.mktemp("five"), count=5)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.on_cluster])
def test_the_blocks_of_the_page_run_on_a_cluster(
    name: str, five_nodes: Cluster, tmp_path: Path
) -> None:
    third = five_nodes.nodes[3]
    acts = {"goqueue cluster unregister 3": third.stop, "client.cluster.drain(3)": third.start}
    follow(name, tmp_path, addresses_of(five_nodes.nodes[1]), acts)


def test_every_page_with_blocks_for_this_test_is_here() -> None:
    given = {
        page.relative_to(ROOT).as_posix()
        for page, _, rule in assigned()
        if rule is not None and rule.runner == RUN_HERE
    }
    assert given == PAGES.keys()
