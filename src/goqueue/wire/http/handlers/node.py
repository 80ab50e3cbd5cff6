"""The node itself, and the documents that describe this API."""

from __future__ import annotations

import platform
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from goqueue.model.support import release
from goqueue.wire.carrier.calls import Raw, encode
from goqueue.wire.http import openapi
from goqueue.wire.http.bodies.node import Alive, Health, Version, Welcome
from goqueue.wire.http.console.pages import Asked, start_page

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


_LINKS = {
    "documentation": "/docs",
    "openapi": "/openapi.json",
    "health": "/healthz",
    "metrics": "/metrics",
    "topics": "/v1/topics",
    "groups": "/v1/groups",
    "cluster": "/v1/admin/cluster",
}


def welcome(front: FrontEnd, call: Call, _: object) -> Welcome | Raw:
    """The start page: the console in a browser, if it was built, and links for programs."""
    if b"text/html" in call.accept:
        return start_page(Asked())
    node_id, cluster_id = front.gate.node.identity(call.session)
    return Welcome(version=release(), node_id=node_id, cluster_id=cluster_id, links=_LINKS)


def health(front: FrontEnd, call: Call, _: object) -> Raw:
    """The health of the node, for monitoring."""
    found = front.gate.node.health(call.session)
    problems = [front.waits_for] if front.waits_for else []
    if found.is_full:
        problems.append("The disk is full: writes are refused until space is freed.")
    if found.failed_count:
        failed = ", ".join(str(one) for one in found.failed[:10]) or found.failed_count
        problems.append(f"Partitions that cannot be written: {failed}.")
    return _health(front, call, problems)


def ready(front: FrontEnd, call: Call, _: object) -> Raw:
    """Whether the node can take requests, and another one may be stopped.

    With a full disk it still serves reads. After its start it serves requests before it is in sync,
    but a rolling restart must not go on to the next node before that.
    """
    reason = front.waits_for or front.gate.node.catches_up(call.session)
    return _health(front, call, [reason] if reason else [])


def _health(front: FrontEnd, call: Call, problems: list[str]) -> Raw:
    node_id, cluster_id = front.gate.node.identity(call.session)
    answer = Health(
        status="degraded" if problems else "ok",
        node_id=node_id,
        cluster_id=cluster_id,
        problems=problems,
    )
    return Raw(encode(answer), b"application/json", status=503 if problems else 200)


def alive(front: FrontEnd, call: Call, _: object) -> Alive:
    return Alive()


def show_version(front: FrontEnd, call: Call, _: object) -> Version:
    node_id, cluster_id = front.gate.node.identity(call.session)
    return Version(
        version=release(),
        python=platform.python_version(),
        api=openapi.API_VERSION,
        node_id=node_id,
        cluster_id=cluster_id,
    )


def document(front: FrontEnd, call: Call, _: object) -> Raw:
    if front.document is None:
        front.document = encode(openapi.document(front.operations))
    return Raw(front.document, b"application/json")


def page(front: FrontEnd, call: Call, _: object) -> Raw:
    """The interactive documentation: one file without external resources."""
    text = files("goqueue.wire.http").joinpath("docs.html").read_bytes()
    return Raw(text, b"text/html; charset=utf-8", headers=_page_headers(text))


def _page_headers(text: bytes) -> bytes:
    """Headers that allow only the page's own script, and no frame of another site around it."""
    script, style = (
        b"'sha256-%s'" % b64encode(sha256(_inside(text, tag)).digest())
        for tag in (b"script", b"style")
    )
    policy = (
        b"default-src 'none'; script-src %s; style-src %s; connect-src 'self'; img-src data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'" % (script, style)
    )
    return b"content-security-policy: %s\r\nx-frame-options: DENY\r\n" % policy


def _inside(text: bytes, tag: bytes) -> bytes:
    return text.partition(b"<%s>" % tag)[2].partition(b"</%s>" % tag)[0]
