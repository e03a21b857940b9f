"""OTLP over HTTP: `POST /v1/logs`, Protobuf or JSON, plain or gzip."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import uvicorn
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from infra.process.bounded_http import BoundedHttp
from ingest.listen import otlp_status
from ingest.listen.intake import Origin
from ingest.listen.otlp_receiver import RETRY_SECONDS, OtlpReceiver, RetryLater
from ingest.listen.otlp_records import Packed, TooMuch, Unusable, of_json, of_protobuf, unzip

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_CONNECTIONS = 64
"""Each may hold a whole request in memory; who finds no place is told to come again (503)."""
_READERS = {_PROTOBUF: of_protobuf, _JSON: of_json}


class _Refused(Exception):
    def __init__(self, http: int, code: int, why: str) -> None:
        super().__init__(why)
        self.http, self.code = http, code


class OtlpHttp:
    """The app of one port."""

    def __init__(self, door: OtlpReceiver, request_bytes: int, unpacked_bytes: int) -> None:
        self._door = door
        self._request_bytes = request_bytes
        self._unpacked_bytes = unpacked_bytes
        self.app = Starlette(routes=[Route("/v1/logs", self._logs, methods=["POST"])])

    async def _logs(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        who = request.client.host if request.client else "unknown"
        try:
            return _answer(kind, await self._take(kind, request))
        except RetryLater as busy:
            # 429 asks this sender to slow down, 503 says that it is not about the sender.
            http, code = (503, otlp_status.UNAVAILABLE)
            if not busy.slow:
                http, code = 429, otlp_status.RESOURCE_EXHAUSTED
            return _error(kind, http, code, str(busy), RETRY_SECONDS)
        except TooMuch as error:
            self._door.refuse("larger than is taken", who)
            return _error(kind, 413, otlp_status.INVALID_ARGUMENT, str(error))
        except Unusable as error:
            self._door.refuse("not what the protocol says", who)
            return _error(kind, 400, otlp_status.INVALID_ARGUMENT, str(error))
        except _Refused as error:
            self._door.refuse(str(error), who)
            return _error(kind, error.http, error.code, str(error))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it

    async def _take(self, kind: str, request: Request) -> Packed:
        key = self._door.keys.caller(request.headers.get("authorization"))
        if key is None:
            raise _Refused(401, otlp_status.UNAUTHENTICATED, "no bearer token that may send")
        if (read := _READERS.get(kind)) is None:
            raise _Refused(
                415,
                otlp_status.INVALID_ARGUMENT,
                f"content-type is neither {_PROTOBUF} nor {_JSON}",
            )
        body = await self._body(request)
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip"):
            raise _Refused(
                415, otlp_status.INVALID_ARGUMENT, "content-encoding is neither gzip nor identity"
            )
        if encoding == "gzip":
            body = await asyncio.to_thread(unzip, body, self._unpacked_bytes)
        peer = (request.client.host, request.client.port) if request.client else ("unknown", 0)
        return await self._door.take(body, read, Origin.of("otlp+http", peer), key)

    async def _body(self, request: Request) -> bytes:
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self._request_bytes:
                raise TooMuch(f"the request has more than {self._request_bytes} bytes")
            parts.append(part)
        return b"".join(parts)


def _answer(kind: str, packed: Packed) -> Response:
    response = response_of(packed)
    if kind == _PROTOBUF:
        return Response(response.SerializeToString(), media_type=_PROTOBUF)
    # Numbers of 64 bits are texts in Protobuf's JSON.
    partial = {"rejectedLogRecords": str(packed.rejected), "errorMessage": packed.why}
    body = {"partialSuccess": partial} if packed.why else {}
    return Response(msgspec.json.encode(body), media_type=_JSON)


def response_of(packed: Packed) -> ExportLogsServiceResponse:
    """The answer to a request that was taken, with what of it was not."""
    response = ExportLogsServiceResponse()
    if packed.why:
        response.partial_success.rejected_log_records = packed.rejected
        response.partial_success.error_message = packed.why
    return response


def _error(kind: str, http: int, code: int, why: str, retry_seconds: int | None = None) -> Response:
    headers = {} if retry_seconds is None else {"retry-after": str(retry_seconds)}
    if http == 401:
        headers["www-authenticate"] = "Bearer"
    if kind == _JSON:
        body = msgspec.json.encode({"code": code, "message": why})
        return Response(body, status_code=http, media_type=_JSON, headers=headers)
    body = otlp_status.rpc_status(code, why, retry_seconds)
    return Response(body, status_code=http, media_type=_PROTOBUF, headers=headers)


class HttpServer(uvicorn.Server):
    """uvicorn within a process that handles signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the listener."""
        yield


def http_server(app: Any, context: Any, end_seconds: int) -> HttpServer:
    """A server for the app; `context`: its TLS, or None."""
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        # Else anybody could name another peer by X-Forwarded-For.
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=end_seconds,
    )
    config.load()
    # Behind `load`, which makes a context from files or none at all.
    config.ssl = context
    return HttpServer(config)
