"""Every block of the documentation is run by a test, or is listed with the reason why not."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import check_command
from tests.page_blocks import PARSED, RULES, RUN_HERE, SHOWN, Rule, assigned, rule_of
from tests.pages import ROOT, Block

EVERY = list(assigned())
NOT_RUN = [(page, block) for page, block, rule in EVERY if rule is not None and rule.reason]
# Programs of lines that are only parsed; what they name must exist.
ELSEWHERE = {
    *("docker", "helm", "useradd", "python3", "install", "cp", "cd", "export", "xdg-open"),
    *("spark-submit", "kafka-configs", "pip", "kcat", "/opt/goqueue/bin/pip", "deploy/tf.sh"),
}
OURS = re.compile(r"(?:deploy|examples|proto)/[\w./-]+")
# Made by whoever follows the page.
MADE = {"deploy/terraform/terraform.tfvars"}


def named(page: Path, block: Block) -> str:
    return f"{page.relative_to(ROOT)}:{block.line}"


def test_every_block_has_a_rule() -> None:
    lacking = [named(page, block) for page, block, rule in EVERY if rule is None]
    assert lacking == [], "say in tests/page_blocks.py what runs them"


def test_every_block_says_its_language() -> None:
    assert [named(page, block) for page, block, _ in EVERY if not block.language] == []


def test_every_rule_is_needed() -> None:
    used = {rule for _, _, rule in EVERY}
    needless = [one for one in RULES if one not in used and "*" not in one.pages]
    assert [one for one in needless if one.runner != RUN_HERE] == []


@pytest.mark.parametrize(
    "rule", [one for one in RULES if one.runner not in (PARSED, SHOWN)], ids=str
)
def test_the_runner_exists_and_names_its_pages(rule: Rule) -> None:
    if rule.runner == RUN_HERE:
        return  # It compares its pages with the rules itself.
    module = ROOT / rule.runner
    texts = [
        one.read_text(encoding="utf-8")
        for one in (module, module.with_name("pages.py"))
        if one.is_file()
    ]
    part = Path(rule.pages)
    word = part.parent.name if "*" in part.name else part.name
    assert any(word in text for text in texts)


def test_what_is_not_run_has_a_reason() -> None:
    assert [one for one in RULES if (one.runner == PARSED) != bool(one.reason)] == []


@pytest.mark.parametrize(
    ("page", "block"), NOT_RUN, ids=[named(page, block) for page, block in NOT_RUN]
)
def test_what_is_not_run_is_well_formed(page: Path, block: Block) -> None:
    rule = rule_of(page, block)
    assert rule is not None
    if block.language == "json":
        json.loads(block.text)
    elif block.language == "python":
        compile(block.text, named(page, block), "exec")
    else:
        for line in lines(block):
            check(line)


def lines(block: Block) -> Iterator[str]:
    """The commands of a block, without assignments before them."""
    text = re.sub(r"\$\([^)]*\)", "VALUE", re.sub(r"\\\n\s*", " ", block.text))
    for line in text.splitlines():
        for part in line.removeprefix("$ ").split(" && "):
            if shlex.split(part, comments=True):
                yield re.sub(r"^(?:[A-Z_]+=\S+ )+", "", part)


def check(line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "goqueue":
        check_command(line)
    elif words[0] == "make":
        done = subprocess.run(
            ["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    elif words[0] not in ("buf", "npm", "go", "node"):
        assert words[0] in ELSEWHERE, line
    for name in set(OURS.findall(line)) - MADE:
        assert (ROOT / name).exists(), name
