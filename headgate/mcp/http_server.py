"""The protocol over HTTP (its transport "streamable HTTP"): each POST is one message.

Every request brings the key with which the API is then asked; a session only proves that its
client began in order. No stream is opened from this side: there is nothing to tell unasked.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from headgate.mcp.server import LONGEST_LINE, VERSIONS, ApiClient, McpServer
from headgate.mcp.tools import Call
from infra.errors import Retryable

PATH = "/mcp"
SESSION_IDLE_SECONDS = 8 * 3600.0
MOST_SESSIONS = 1_000
_PROBE = Call("/api/v1/proposals")
"""Asked once a session to learn whether the API knows the key: it reads a few small files."""
_Headers = Mapping[str, str]


class _Refused(Exception):
    """An HTTP status and a sentence."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class McpSessions:
    """Sessions by id, each of one key; the one that was idle longest makes room."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def begin(self, token: str) -> str:
        """A new session of a key."""
        name = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._used) >= MOST_SESSIONS:
                del self._used[next(iter(self._used))]
            self._used[name] = (_mark(token), time.monotonic())
        return name

    def use(self, name: str, token: str) -> bool:
        """Whether it is a session of that key; its idle time begins anew."""
        with self._lock:
            mark, used = self._used.get(name, ("", 0.0))
            if mark != _mark(token) or time.monotonic() - used > SESSION_IDLE_SECONDS:
                return False
            # Put at the end: the first is then always the one that was idle longest.
            del self._used[name]
            self._used[name] = (mark, time.monotonic())
            return True

    def end(self, name: str) -> None:
        """Forget a session."""
        with self._lock:
            self._used.pop(name, None)


class McpHttp:
    """An ASGI app with one path. `client_of` makes what asks the API with a key; `origins`: whose
    pages may call, beside programs that are no browser."""

    def __init__(
        self, client_of: Callable[[str], ApiClient], origins: Collection[str] = ()
    ) -> None:
        self._client_of = client_of
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._sessions = McpSessions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        try:
            status, answer, more = await self._answered(scope, headers, receive)
        except _Refused as refused:
            error = {"code": -32600, "message": str(refused)}
            answer = {"jsonrpc": "2.0", "id": None, "error": error}
            status, more = refused.status, refused.headers
        await _respond(send, status, answer, more)

    async def _answered(
        self, scope: Scope, headers: _Headers, receive: Receive
    ) -> tuple[int, dict[str, Any] | None, dict[str, str]]:
        if scope["path"] != PATH:
            raise _Refused(404, f"there is only {PATH}")
        # Before the key is looked at: a page of another site that reaches us through a name that
        # it bound to this machine must not even learn whether a key is good.
        origin = headers.get("origin")
        if origin is not None and origin.rstrip("/").lower() not in self._origins:
            raise _Refused(403, f"origin {origin[:200]} is not allowed (--allow-origin)")
        token = _bearer(headers)
        if headers.get("mcp-protocol-version", VERSIONS[0]) not in VERSIONS:
            raise _Refused(400, f"MCP-Protocol-Version: one of {', '.join(VERSIONS)}")
        if scope["method"] == "DELETE":
            name = self._session(headers, token)
            self._sessions.end(name)
            return 204, None, {}
        if scope["method"] != "POST":
            raise _Refused(405, "send messages by POST; there is no stream to open",
                           allow="POST, DELETE")  # fmt: skip
        _require_json(headers)
        body = await _body(receive)
        message = _message(body)
        more = {}
        if message.get("method") == "initialize":
            await run_in_threadpool(self._require_known, token)
            more = {"Mcp-Session-Id": self._sessions.begin(token)}
        else:
            self._session(headers, token)
        # A client's own answers and notifications want none.
        if "method" not in message:
            return 202, None, {}
        server = McpServer(self._client_of(token))
        # A tool asks the API and waits: other clients are answered meanwhile.
        answer = await run_in_threadpool(server.answer, body)
        return (202, None, more) if answer is None else (200, answer, more)

    def _session(self, headers: _Headers, token: str) -> str:
        name = headers.get("mcp-session-id")
        if name is None:
            raise _Refused(400, "Mcp-Session-Id: send the one that initialize was answered with")
        # The same answer for another key's session: nobody learns which there are.
        if not self._sessions.use(name, token):
            raise _Refused(404, "this session is over; begin with initialize")
        return name

    def _require_known(self, token: str) -> None:
        """Strangers must not fill the sessions."""
        try:
            status, _ = self._client_of(token).ask(_PROBE)
        except Retryable as error:
            raise _Refused(503, str(error)) from None
        if status == 401:
            raise _Refused(401, "the API does not know this key", www_authenticate=_SCHEME)
        if status == 429:
            raise _Refused(429, "this key asked too often; wait a minute", retry_after="60")


_SCHEME = 'Bearer realm="headgate"'


def _mark(token: str) -> str:
    # Kept in place of the key: a dump of this process must not hold keys of clients that left.
    return hashlib.sha256(token.encode()).hexdigest()


def _bearer(headers: _Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    # What goes on to the API as a header must be one line of plain characters.
    if scheme.lower() != "bearer" or not token.strip().isascii() or not token.strip().isprintable():
        raise _Refused(401, "send a key of the API: Authorization: Bearer <key>",
                       www_authenticate=_SCHEME)  # fmt: skip
    if not token.strip():
        raise _Refused(401, "the key is empty", www_authenticate=_SCHEME)
    return token.strip()


def _require_json(headers: _Headers) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    # A browser sends this type to another site only after asking, which is refused above.
    if kind != "application/json":
        raise _Refused(415, "Content-Type: send application/json")
    accepted = headers.get("accept", "*/*").lower()
    if "application/json" not in accepted and "*/*" not in accepted:
        raise _Refused(406, "Accept: answers are application/json")


def _message(body: str) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise _Refused(400, "not JSON") from None
    if not isinstance(message, dict):
        raise _Refused(400, "one JSON-RPC message a request")
    return message


async def _body(receive: Receive) -> str:
    parts = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise _Refused(400, "the request ended early")
        parts += event.get("body", b"")
        if len(parts) > LONGEST_LINE:
            raise _Refused(413, f"a message has at most {LONGEST_LINE} bytes")
        if not event.get("more_body", False):
            return parts.decode("utf-8", "replace")


async def _respond(
    send: Send, status: int, answer: dict[str, Any] | None, more: Mapping[str, str]
) -> None:
    body = b"" if answer is None else json.dumps(answer, ensure_ascii=False).encode()
    headers = [(b"cache-control", b"no-store"), (b"content-length", str(len(body)).encode())]
    if body:
        headers.append((b"content-type", b"application/json"))
    headers += [(name.lower().encode(), value.encode()) for name, value in more.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
