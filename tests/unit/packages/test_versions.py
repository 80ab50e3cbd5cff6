"""The versions of Python that are promised, built and tested are the same."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[3]
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
WHEELS = PROJECT["tool"]["cibuildwheel"]
# Identifiers of builds as cibuildwheel names them; those after the first row are not wanted.
WANTED = "cp{}-manylinux_x86_64", "cp{}-musllinux_aarch64", "cp{}-macosx_arm64"
UNWANTED = "cp{}-manylinux_i686", "cp{}t-manylinux_x86_64", "pp{}-manylinux_x86_64"


def promised() -> list[str]:
    """The versions of the classifiers: 3.11, 3.12, ..."""
    found = (
        re.fullmatch(r".*:: Python :: (3\.\d+)", one) for one in PROJECT["project"]["classifiers"]
    )
    return [one[1] for one in found if one is not None]


def is_built(identifier: str) -> bool:
    def is_named(patterns: str) -> bool:
        return any(fnmatch.fnmatchcase(identifier, one) for one in patterns.split())

    return is_named(WHEELS["build"]) and not is_named(WHEELS["skip"])


def test_a_wheel_is_built_for_each_promised_version_and_for_no_other() -> None:
    versions = [one.replace(".", "") for one in promised()]
    for version in versions:
        assert all(is_built(one.format(version)) for one in WANTED), version
        assert not any(is_built(one.format(version)) for one in UNWANTED), version
    others = {f"3{minor}" for minor in range(8, 20)} - set(versions)
    assert not [one for one in others if is_built(WANTED[0].format(one))]


def test_the_unit_tests_run_with_each_promised_version() -> None:
    text = (REPOSITORY / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    matrices = [
        job["strategy"]["matrix"]["python"]
        for job in yaml.safe_load(text)["jobs"].values()
        if "python" in job.get("strategy", {}).get("matrix", {})
    ]
    assert matrices == [promised()]


def test_the_first_promised_version_is_the_one_that_is_required() -> None:
    assert PROJECT["project"]["requires-python"] == f">={promised()[0]}"


def test_every_machine_has_its_image_and_every_wheel_is_tried() -> None:
    linux = WHEELS["linux"]
    assert {f"manylinux-{one}-image" for one in linux["archs"]} == set(linux) - {"archs"}
    command = WHEELS["test-command"].removeprefix("python {project}/")
    assert (REPOSITORY / command).is_file()
