"""grpc.reflection.v1 and v1alpha: the descriptors of this API, for tools such as grpcurl.

The messages of both versions are the same. Only files of this API are shown: the pool of the
process has others, among them those that clients have registered as schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection_pb2

from goqueue.wire.grpc.calls import decoded
from goqueue.wire.grpc.statuses import Code

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd
    from goqueue.wire.grpc.routes import Wire

# The library has no types.
Request: TypeAlias = Any
Response: TypeAlias = Any


async def reflect(front: FrontEnd, call: Call, wire: Wire) -> None:
    files = _files_of(front)
    while (data := await wire.read()) is not None:
        request = decoded(reflection_pb2.ServerReflectionRequest, data)
        response = _answer(front, files, request)
        response.original_request.CopyFrom(request)
        response.valid_host = request.host
        await wire.write(response.SerializeToString())


def _files_of(front: FrontEnd) -> dict[str, FileDescriptor]:
    """Return the files of all services, and those that they import, by name."""
    pool, files = descriptor_pool.Default(), dict[str, FileDescriptor]()
    for name in front.services:
        try:
            _collect(pool.FindFileContainingSymbol(name), files)
        except KeyError:
            continue  # reflection itself in a version without a file here
    return files


def _collect(file: FileDescriptor, files: dict[str, FileDescriptor]) -> None:
    if file.name not in files:
        files[file.name] = file
        for one in file.dependencies:
            _collect(one, files)


def _answer(front: FrontEnd, files: dict[str, FileDescriptor], request: Request) -> Response:
    kind = request.WhichOneof("message_request")
    if kind == "list_services":
        services = [reflection_pb2.ServiceResponse(name=one) for one in front.services if one]
        return reflection_pb2.ServerReflectionResponse(
            list_services_response=reflection_pb2.ListServiceResponse(service=services)
        )
    if kind == "file_by_filename":
        return _of_file(files.get(request.file_by_filename))
    if kind == "file_containing_symbol":
        return _of_file(_file_with(files, request.file_containing_symbol))
    return _refusal(Code.NOT_FOUND, "There are no extensions here.")


def _file_with(files: dict[str, FileDescriptor], symbol: str) -> FileDescriptor | None:
    try:
        found = descriptor_pool.Default().FindFileContainingSymbol(symbol)
    except KeyError:
        return None
    return files.get(found.name)


def _of_file(file: FileDescriptor | None) -> Response:
    """Return a file and all that it imports."""
    if file is None:
        return _refusal(Code.NOT_FOUND, "There is no such file or symbol.")
    files: dict[str, FileDescriptor] = {}
    _collect(file, files)
    texts = []
    for one in files.values():
        copied = descriptor_pb2.FileDescriptorProto()
        one.CopyToProto(copied)
        texts.append(copied.SerializeToString())
    return reflection_pb2.ServerReflectionResponse(
        file_descriptor_response=reflection_pb2.FileDescriptorResponse(file_descriptor_proto=texts)
    )


def _refusal(code: Code, text: str) -> Response:
    return reflection_pb2.ServerReflectionResponse(
        error_response=reflection_pb2.ErrorResponse(error_code=code, error_message=text)
    )
