"""The packages: built twice, looked into, and installed where nothing else is."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from goqueue.cli.main import COMMANDS
from tests.integration.process import Broker
from tools.packages.check_compiled import COMPILED_MODULES

from .building import REPOSITORY, build, copy_of_tree, repository, unpacked
from .environments import Environment

pytestmark = pytest.mark.timeout(600)  # compiles twice, on a machine that may be busy

VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]


class Packages(NamedTuple):
    commit: str
    sdist: Path
    wheel: Path
    pure: Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def packages(folder: Path) -> Packages:
    return build_all(folder, "first")


@pytest.fixture(scope="module")
def light(folder: Path, packages: Packages) -> Environment:
    """A client: the platform wheel, no extras."""
    return Environment(folder / "light", packages.wheel)


@pytest.fixture(scope="module")
def node(folder: Path, packages: Packages) -> Iterator[Broker]:
    """A broker installed from the wheel without compiled modules."""
    environment = Environment(folder / "server", packages.pure, ["server", "grpc"])
    home = folder / "node"
    home.mkdir()
    broker = Broker(home, {"listeners.grpc": "127.0.0.1:0"})
    broker.python = str(environment.python)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def build_all(folder: Path, name: str) -> Packages:
    """Both wheels from the source archive, as front ends and package indexes build them."""
    commit = repository(folder / f"tree-{name}")
    sdist = build("build_sdist", folder / f"tree-{name}", folder / f"dist-{name}")
    tree = unpacked(sdist, folder / f"unpacked-{name}")
    wheel = build("build_wheel", tree, folder / f"dist-{name}")
    pure_tree = unpacked(sdist, folder / f"unpacked-pure-{name}")
    pure = build("build_wheel", pure_tree, folder / f"dist-{name}", GOQUEUE_PURE="1")
    return Packages(commit, sdist, wheel, pure)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_same_sources_give_the_same_bytes(folder: Path, packages: Packages) -> None:
    again = build_all(folder, "second-in-a-longer-path")
    assert packages.commit == again.commit
    for first, second in zip(packages[1:], again[1:], strict=True):
        assert first.name == second.name
        digests = {hashlib.sha256(one.read_bytes()).hexdigest() for one in (first, second)}
        assert len(digests) == 1, f"{first.name} differs"


def test_wheels_have_what_people_use_and_no_sources_of_modules(packages: Packages) -> None:
    here = REPOSITORY / "src"
    needed = {
        str(file.relative_to(here))
        for file in here.rglob("*")
        if file.is_file()
        and file.suffix in (".py", ".html", ".js", ".css", ".svg", ".gz", ".typed")
    }
    assert "goqueue/console/static/index.html" in needed
    assert "goqueue/wire/grpc/messages/publish_service_pb2.py" in needed
    assert "goqueue/py.typed" in needed
    for wheel in packages.wheel, packages.pure:
        names = names_in(wheel)
        assert not needed - names
        assert not [name for name in names if name.endswith((".c", ".h"))]


def test_compiled_modules_are_in_the_platform_wheel_alone(packages: Packages) -> None:
    compiled = {name.split(".")[0] for name in names_in(packages.wheel) if name.endswith(".so")}
    assert compiled == {name.replace(".", "/") for name in COMPILED_MODULES}
    assert packages.pure.name.endswith("-py3-none-any.whl")
    assert not [name for name in names_in(packages.pure) if name.endswith(".so")]


def test_the_source_archive_has_what_a_build_needs_and_the_interface_files(
    packages: Packages,
) -> None:
    with tarfile.open(packages.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "LICENSE", "CHANGELOG.md"} <= names
    for pattern in ("src/**/*.[ch]", "proto/**/*.proto"):
        files = {str(one.relative_to(REPOSITORY)) for one in REPOSITORY.glob(pattern)}
        assert files
        assert not files - names


def test_a_build_between_two_releases_names_its_commit(
    light: Environment, packages: Packages
) -> None:
    release = f"{VERSION}+g{packages.commit[:12]}" if ".dev" in VERSION else VERSION
    assert light.run("--version").stdout.strip() == release


def test_changed_sources_and_sources_without_a_repository_say_so(tmp_path: Path) -> None:
    commit = repository(tmp_path / "changed")
    with (tmp_path / "changed" / "README.md").open("a") as readme:
        readme.write("More.\n")
    copy_of_tree(tmp_path / "exported")
    builds = {
        "changed": ({}, f"{commit[:12]}.dirty"),
        "exported": ({}, ""),
        "given": ({"GOQUEUE_COMMIT": "1a2b" * 10}, "1a2b1a2b1a2b"),
    }
    (tmp_path / "given").symlink_to("exported")
    for name, (variables, found) in builds.items():
        sdist = build("build_sdist", tmp_path / name, tmp_path / f"dist-{name}", **variables)
        module = unpacked(sdist, tmp_path / f"unpacked-{name}") / "src/goqueue/model/support.py"
        assert f'COMMIT = "{found}"' in module.read_text()
    assert 'COMMIT = ""' in (tmp_path / "exported/src/goqueue/model/support.py").read_text()


def test_an_editable_install_names_no_commit_because_its_sources_go_on(
    folder: Path, packages: Packages, tmp_path: Path
) -> None:
    tree = folder / "tree-first"
    wheel = build("build_editable", tree, tmp_path, GOQUEUE_PURE="1")
    assert 'COMMIT = ""' in (tree / "src/goqueue/model/support.py").read_text()
    assert not [name for name in names_in(wheel) if name.endswith("support.py")]


def test_all_compiled_modules_of_the_wheel_can_be_imported(light: Environment) -> None:
    check = (REPOSITORY / "tools" / "packages" / "check_compiled.py").read_text()
    done = light.run_python(check)
    assert done.stdout == f"{len(COMPILED_MODULES)} compiled modules\n", done.stderr


def test_a_client_without_the_packages_of_the_broker_says_how_to_get_them(
    light: Environment,
) -> None:
    refused = light.run("serve")
    assert refused.returncode == 1
    assert "uvloop" in refused.stderr
    assert "pip install 'goqueue[server]'" in refused.stderr
    refused = light.run("consume", "orders", "--decode", "value")
    assert refused.returncode == 1
    assert "pip install 'goqueue[schemas]'" in refused.stderr
    refused = light.run_python("from goqueue.grpc import Client")
    assert "install goqueue[grpc]" in refused.stderr


def test_every_command_but_the_broker_works_without_its_packages(light: Environment) -> None:
    loaded = light.run_python(
        "from importlib import import_module\n"
        "from goqueue.cli.main import COMMANDS\n"
        "for name in COMMANDS: import_module(f'goqueue.cli.commands.{name}')\n"
        "print(len(COMMANDS))"
    )
    assert loaded.stdout.strip() == str(len(COMMANDS)), loaded.stderr


def test_an_installed_client_uses_an_installed_broker(light: Environment, node: Broker) -> None:
    address = ("--bootstrap", node.bootstrap)
    made = light.run(*address, "topic", "create", "orders", "--partitions", "2")
    assert made.returncode == 0, made.stderr
    sent = light.run(*address, "produce", "orders", "-m", "a harp", "-k", "customer-42")
    assert sent.returncode == 0, sent.stderr
    read = light.run(*address, "consume", "orders", "--format", "json")
    assert read.returncode == 0, read.stderr
    assert json.loads(read.stdout)["value"] == "a harp"

    done = light.run_python(
        "from goqueue import Client\n"
        f"client = Client({node.http!r})\n"
        "client.publish('orders', 'a lute', key='customer-43')\n"
        "worker = client.consumer('orders', group='billing')\n"
        "received = []\n"
        "@worker.handler\n"
        "def handle(message):\n"
        "    received.append(message.text)\n"
        "    if len(received) == 2: worker.stop()\n"
        "worker.run()\n"
        "print(sorted(received))"
    )
    assert done.stdout.strip() == "['a harp', 'a lute']", done.stderr


def test_the_extra_for_grpc_is_all_that_its_client_needs(
    folder: Path, packages: Packages, node: Broker
) -> None:
    environment = Environment(folder / "grpc", packages.pure, ["grpc"])
    done = environment.run_python(
        "from goqueue.grpc import Client\n"
        f"with Client({node.grpc!r}) as client:\n"
        "    print(client.publish('reminders', 'a drum').offset)\n"
        "    try:\n"
        "        client.topics.describe('no such topic')\n"
        "    except Exception as error:\n"
        "        print(error.code)"
    )
    assert done.stdout.split() == ["0", "unknown_topic"], done.stdout + done.stderr


def test_a_broker_from_the_pure_wheel_runs_without_compiled_modules(node: Broker) -> None:
    done = subprocess.run(
        [node.python, "-c", "import goqueue.model._decode"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "No module named 'goqueue.model._decode'" in done.stderr
    assert node.grpc
    assert sys.prefix not in node.python
