"""What OTLP says of a request that is not taken: `google.rpc.Status`, made from its published form.

https://opentelemetry.io/docs/specs/otlp/ asks for it as the body of each error over HTTP; over gRPC
the pause before a retry stands in it, without which a sender must not try again.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE, UNAUTHENTICATED = 3, 8, 14, 16
"""Codes of gRPC (https://grpc.github.io/grpc/core/md_doc_statuscodes.html)."""


def _classes() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="headgate/rpc_status.proto",
        package="google.rpc",
        syntax="proto3",
        dependency=["google/protobuf/any.proto", "google/protobuf/duration.proto"],
    )
    status = file.message_type.add(name="Status")
    single, many = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
    status.field.add(name="code", number=1, type=Field.TYPE_INT32, label=single)
    status.field.add(name="message", number=2, type=Field.TYPE_STRING, label=single)
    status.field.add(
        name="details",
        number=3,
        type=Field.TYPE_MESSAGE,
        label=many,
        type_name=".google.protobuf.Any",
    )
    retry = file.message_type.add(name="RetryInfo")
    retry.field.add(
        name="retry_delay",
        number=1,
        type=Field.TYPE_MESSAGE,
        label=single,
        type_name=".google.protobuf.Duration",
    )
    # A pool of its own: another library may bring the same names.
    pool = descriptor_pool.DescriptorPool()
    for module in (any_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    names = ("google.rpc.Status", "google.rpc.RetryInfo")
    made = [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]
    return made[0], made[1]


_Status, _RetryInfo = _classes()


def rpc_status(code: int, message: str, retry_seconds: int | None = None) -> bytes:
    """The message, serialized; with the pause after which the sender may try again."""
    made = _Status(code=code, message=message)
    if retry_seconds is not None:
        retry = _RetryInfo()
        retry.retry_delay.seconds = retry_seconds
        detail = made.details.add()
        detail.type_url = "type.googleapis.com/google.rpc.RetryInfo"
        detail.value = retry.SerializeToString()
    serialized: bytes = made.SerializeToString()
    return serialized
