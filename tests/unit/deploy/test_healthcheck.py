from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from tests.unit.deploy.names import DEPLOY


@pytest.fixture(scope="module")
def healthcheck() -> ModuleType:
    spec = importlib.util.spec_from_file_location("healthcheck", DEPLOY / "healthcheck.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("listeners", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080/readyz"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080/readyz"),
        ("[::]:8080", "http://127.0.0.1:8080/readyz"),
        ("sasl_ssl://0.0.0.0:8443", "https://127.0.0.1:8443/readyz"),
        ("inside=ssl://10.0.0.1:8443,outside=0.0.0.0:1", "https://10.0.0.1:8443/readyz"),
        ("sasl_plaintext://0.0.0.0:80", "http://127.0.0.1:80/readyz"),
    ],
)
def test_the_first_http_listener_is_asked(
    healthcheck: ModuleType, listeners: str, url: str
) -> None:
    assert healthcheck.default_url(listeners) == url


def test_nobody_listening_is_not_ready(healthcheck: ModuleType) -> None:
    assert "127.0.0.1:1" in healthcheck.ready("http://127.0.0.1:1/readyz")
