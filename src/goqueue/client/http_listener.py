"""Finds the HTTP address of a broker through its Kafka listener."""

from __future__ import annotations

import ipaddress

from goqueue.client.addresses import Address, read_addresses
from goqueue.client.cluster import Cluster, Node
from goqueue.client.configs import ConfigOwner
from goqueue.client.errors import ConnectionLost, ErrorContext, Unreachable, check
from goqueue.model.errors import GoQueueError, RequestTimedOut
from goqueue.wire.kafka.messages import describe_configs

HTTP_SETTING = "goqueue.http.listener"  # the name of the setting in a broker's configuration


def find_http(cluster: Cluster) -> str | None:
    """Return the HTTP address that the first responding broker reports; None if it reports none.

    A broker with several HTTP listeners reports the one that is most like the Kafka listener that
    it is asked through. An address with TLS begins with https://. The configuration of a broker is
    only available from that broker, so each is asked for its own.
    """
    failure: GoQueueError | None = None
    for node in cluster.nodes():
        try:
            return _ask(cluster, node)
        except (Unreachable, ConnectionLost, RequestTimedOut) as error:
            failure = failure or error
    assert failure is not None, "a cluster that answers has a node"
    raise failure


def reachable(stated: Address, reached: Address) -> Address:
    """The address to connect to; a listener on all interfaces has its broker's address."""
    try:
        is_everywhere = ipaddress.ip_address(stated.host).is_unspecified
    except ValueError:
        is_everywhere = False
    return Address(reached.host, stated.port) if is_everywhere else stated


def _ask(cluster: Cluster, node: Node) -> str | None:
    resource = describe_configs.DescribeConfigsResource(
        ConfigOwner.BROKER, str(node.id), [HTTP_SETTING]
    )
    request = describe_configs.DescribeConfigsRequest([resource])
    result = cluster.link(node.address).call(describe_configs, request).results[0]
    check(result.error_code, result.error_message, ErrorContext(str(node.id)))
    for one in result.configs:
        if one.name == HTTP_SETTING and one.value and not one.value.endswith(":0"):
            scheme, separator, address = one.value.rpartition("://")
            found = reachable(read_addresses(address)[0], node.address)
            return f"{scheme}{separator}{found}"
    return None
