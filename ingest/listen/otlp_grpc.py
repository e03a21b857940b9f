"""OTLP over gRPC: `LogsService.Export`."""

from __future__ import annotations

from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
import grpc.aio

from infra.config.settings import OtlpListenerSettings
from ingest.listen import otlp_status
from ingest.listen.intake import Origin
from ingest.listen.otlp_http import response_of
from ingest.listen.otlp_receiver import RETRY_SECONDS, OtlpReceiver, RetryLater
from ingest.listen.otlp_records import Unusable, of_protobuf

_SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
_STREAMS = 32
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class OtlpGrpc:
    """The server of one port."""

    def __init__(
        self, door: OtlpReceiver, options: OtlpListenerSettings, credentials: Any | None
    ) -> None:
        self._door = door
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", options.request_bytes),
                ("grpc.max_concurrent_streams", _STREAMS),
                # Else a second listener would take half of the requests of the first.
                ("grpc.so_reuseport", 0),
            ),
            maximum_concurrent_rpcs=_STREAMS,
        )
        # The bytes as they come: who may not send must not make us read them.
        handler = grpc.unary_unary_rpc_method_handler(self._export)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {"Export": handler}),)
        )
        host = f"[{options.host}]" if ":" in options.host else options.host
        where = f"{host}:{options.grpc_port}"
        self.port = (
            self._server.add_insecure_port(where)
            if credentials is None
            else self._server.add_secure_port(where, credentials)
        )
        self.address = f"otlp+grpc {host}:{self.port}"

    async def start(self) -> None:
        """Begin to serve."""
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Take no more; requests under way have so long."""
        await self._server.stop(seconds)

    async def _export(self, request: bytes, context: Any) -> bytes:
        origin = Origin.of("otlp+grpc", _peer(context.peer()))
        metadata = dict(context.invocation_metadata() or ())
        key = self._door.keys.caller(metadata.get("authorization"))
        if key is None:
            self._door.refuse("no bearer token that may send", origin.address)
            await _abort(context, otlp_status.UNAUTHENTICATED, "no bearer token that may send")
        try:
            packed = await self._door.take(request, of_protobuf, origin, key)
        except RetryLater as busy:
            code = otlp_status.UNAVAILABLE if busy.slow else otlp_status.RESOURCE_EXHAUSTED
            await _abort(context, code, str(busy), RETRY_SECONDS)
        except Unusable as error:
            self._door.refuse("not what the protocol says", origin.address)
            await _abort(context, otlp_status.INVALID_ARGUMENT, str(error))
        return bytes(response_of(packed).SerializeToString())


async def _abort(context: Any, code: int, why: str, retry_seconds: int | None = None) -> NoReturn:
    details = otlp_status.rpc_status(code, why, retry_seconds)
    await context.abort(_CODES[code], why, (("grpc-status-details-bin", details),))
    raise AssertionError("abort raises")


def _peer(text: str) -> tuple[str, int]:
    """Address and port from `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`."""
    address, _, port = unquote(text).partition(":")[2].rpartition(":")
    return address.strip("[]"), int(port) if port.isdecimal() else 0
