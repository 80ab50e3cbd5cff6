"""The workflows: actions by commit, permissions in every job that needs some, and no tokens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[3]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
_PINNED = re.compile(r"^\s*(- )?uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$")
_MAKE = re.compile(r"\bmake ([a-z-]+)")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_named_by_commit_with_the_version_as_a_comment(file: Path) -> None:
    loose = [
        line.strip()
        for line in file.read_text(encoding="utf-8").splitlines()
        if "uses:" in line and not _PINNED.match(line)
    ]
    assert not loose


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_job_may_only_read_unless_it_says_more_and_ends_by_itself(file: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job, name
        if "write" in job.get("permissions", {}).values():
            assert job["environment"] == "release", name


def test_a_release_publishes_with_its_identity_and_without_a_stored_secret() -> None:
    text = (REPOSITORY / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    assert set(jobs["publish"]["needs"]) == {"wheels", "sources"}


def test_workflows_run_targets_that_exist() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.M)
    )
    for file in WORKFLOWS:
        wanted = set(_MAKE.findall(file.read_text(encoding="utf-8")))
        assert wanted <= targets


def test_a_release_pins_the_base_of_the_image_and_signs_image_and_chart() -> None:
    text = (REPOSITORY / ".github/workflows/release.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"]["image"]["steps"]
    [push] = [one["run"] for one in steps if one.get("id") == "push"]
    assert '--build-arg "BASE=$base@$digest"' in push
    dockerfile = (REPOSITORY / "deploy/Dockerfile").read_text(encoding="utf-8")
    assert len(re.findall(r"^ARG BASE=\S+$", dockerfile, re.MULTILINE)) == 1, "what sed finds"
    signed = [
        one["with"]["subject-digest"]
        for one in steps
        if one.get("uses", "").startswith("actions/attest-build-provenance@")
    ]
    assert signed == [
        "${{ steps.push.outputs.digest }}",
        "${{ steps.chart.outputs.digest }}",
    ]
