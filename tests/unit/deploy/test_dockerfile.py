"""The image: rules that hadolint checks too, who it runs as, and settings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goqueue.model.errors import InvalidSettings
from tests.unit.deploy.names import DEPLOY, REPOSITORY, settings_of
from tools.packages.dockerfile import complaints, stages

TEXT = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
NODE = stages(TEXT)[""]


def test_the_dockerfile_follows_the_rules() -> None:
    assert complaints(TEXT) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("FROM python", "has no tag"),
        ("FROM python:latest", "has no tag"),
        ("ADD . .", "COPY instead of ADD"),
        ("WORKDIR code", "absolute"),
        ("ENTRYPOINT goqueue serve", "exec form"),
        ("RUN cd / && true", "WORKDIR"),
        ("RUN apt-get install --yes gcc", "--no-install-recommends"),
        ("RUN apt-get install --yes --no-install-recommends gcc", "lists"),
        ("RUN pip install goqueue", "--no-cache-dir"),
        ("RUN pip install --no-cache-dir -r a.lock", "--require-hashes"),
    ],
)
def test_each_rule_is_checked(line: str, complaint: str) -> None:
    assert any(complaint in found for found in complaints(line)), complaints(line)


def test_a_container_is_not_root_and_gets_signals_and_health_checks() -> None:
    user, _, group = NODE.last("USER").text.partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert NODE.last("ENTRYPOINT").as_list() == ["goqueue", "serve"]
    assert NODE.last("STOPSIGNAL").text == "SIGTERM"
    assert NODE.last("HEALTHCHECK").as_list() == ["goqueue-health"]


def test_the_image_opens_what_its_settings_name_and_needs_credentials_or_consent() -> None:
    environment = NODE.environment()
    copied = [one.arguments for one in NODE.instructions if one.name == "COPY"]
    assert ["deploy/goqueue.yaml", environment["GOQUEUE_CONFIG"]] in copied
    with pytest.raises(InvalidSettings, match="other machines could connect"):
        settings_of(environment)
    settings = settings_of(environment | {"GOQUEUE_ALLOW_UNAUTHENTICATED": "true"})
    ports = {one.port for many in settings.listeners.of_clients().values() for one in many}
    exposed = {int(word) for word in NODE.last("EXPOSE").words}
    assert exposed == ports | {settings.listeners.internal.port}
    assert str(settings.node.data_dir) == NODE.last("VOLUME").text


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for stage in stages(TEXT).values():
        for one in stage.instructions:
            if one.name == "COPY" and not any(flag.startswith("--from") for flag in one.flags):
                for source in one.arguments[:-1]:
                    assert (REPOSITORY / source).exists(), source
                    assert Path(source).parts[0] not in ignored


def test_the_wheel_in_the_image_is_built_from_all_that_it_needs() -> None:
    copied = {
        source
        for one in stages(TEXT)["build"].instructions
        if one.name == "COPY"
        for source in one.arguments[:-1]
    }
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"(README\.md|LICENSE)"', project)
    assert {"pyproject.toml", "setup.py", "src", *named} <= copied
