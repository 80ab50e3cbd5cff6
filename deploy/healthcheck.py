#!/usr/bin/env python3
"""Exits with 0 if the node of this container or machine is ready: `goqueue-health [URL]`.

The image has no curl. By default it asks the HTTP listener of this machine, at the port of
GOQUEUE_LISTEN_HTTP; HEALTH_URL or an argument names another address. Certificates are not verified:
the node asks itself.
"""

from __future__ import annotations

import os
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 4
PATH = "/readyz"


def default_url(listeners: str) -> str:
    """The first HTTP listener, asked on loopback if it listens on all addresses."""
    first = listeners.split(",")[0].split("=")[-1]
    security, _, address = first.rpartition("://")
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", "[::]", ""):
        host = "127.0.0.1"
    scheme = "https" if security in ("ssl", "sasl_ssl") else "http"
    return f"{scheme}://{host}:{port}{PATH}"


def ready(url: str) -> str:
    """Nothing if the node is ready, else why not."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port
    connection = (
        HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=_unverified())
        if parts.scheme == "https"
        else HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    )
    try:
        connection.request("GET", parts.path or PATH)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace").strip()
    except (OSError, HTTPException) as error:
        return f"{url}: {error}"
    finally:
        connection.close()
    return "" if response.status == 200 else f"{url}: {response.status} {text}"


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def main() -> int:
    listeners = os.environ.get("GOQUEUE_LISTEN_HTTP") or "127.0.0.1:8080"
    url = os.environ.get("HEALTH_URL") or default_url(listeners)
    reason = ready(sys.argv[1] if len(sys.argv) > 1 else url)
    if reason:
        print(reason, file=sys.stderr)
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
