"""What grpcurl does, with the gRPC library of Python: calls by name, with what reflection says."""

from __future__ import annotations

import json
import shlex
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SECONDS = 30


def call_as_grpcurl(address: str, command: str) -> list[Any]:
    """Return the responses to a command `grpcurl -plaintext [-d JSON] HOST:PORT NAME`."""
    program, plain, *arguments = shlex.split(command)
    assert (program, plain) == ("grpcurl", "-plaintext")
    body = "{}"
    if arguments[0] == "-d":
        body, arguments = arguments[1], arguments[2:]
    _, *names = arguments
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        if names == ["list"]:
            return list(database.get_services())
        if names[0] == "describe":
            return [pool.FindServiceByName(names[1]).full_name]
        return _called(channel, pool, names[0], body)


def _called(channel: grpc.Channel, pool: DescriptorPool, name: str, body: str) -> list[Any]:
    service, _, method = name.partition("/")
    found = pool.FindServiceByName(service).FindMethodByName(method)
    request = json_format.ParseDict(
        json.loads(body), GetMessageClass(found.input_type)(), descriptor_pool=pool
    )
    stream = channel.stream_stream(
        f"/{name}",
        request_serializer=lambda one: one.SerializeToString(),
        response_deserializer=GetMessageClass(found.output_type).FromString,
    )
    return list(stream(iter([request]), timeout=SECONDS))
