"""`Idempotency-Key`: a POST that is sent again is answered as it was, and not done again."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.auth import Access
from api.services.act_store import StateFolder
from infra.config.settings import Settings
from infra.errors import Retryable
from infra.process.log import say

REPLAYED_FOR = timedelta(hours=24)
LONGEST_KEY = 255
LARGEST_KEPT = 4 << 20
"""Bytes of an answer that is kept; a larger one is sent, and computed again."""

_KEPT_HEADERS = (
    b"content-type",
    b"content-disposition",
    b"etag",
    b"location",
    b"retry-after",
    b"preference-applied",
    b"headgate-rows",
    b"headgate-engine",
)

_NOT_KEPT = (401, 403, 409, 429, problems.HUNG_UP)
"""Statuses that another try may not get; who hung up is the one to send its request again."""


class IdempotentPosts:
    """Keeps the answers of POSTs that carry a key, by caller, path and key, for 24 hours."""

    def __init__(self, app: ASGIApp, settings: Settings, access: Access) -> None:
        self._app = app
        self._access = access
        self._answers = StateFolder(settings, "answers", REPLAYED_FOR)
        self._at_work: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _header(scope, b"idempotency-key")
        caller = None
        if scope["type"] == "http" and scope["method"] == "POST" and key is not None:
            given = _header(scope, b"authorization") or ""
            caller = await run_in_threadpool(self._access.caller_of_header, given)
        if caller is None or key is None:  # without a caller the route answers 401
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        # Told before the body is read: a wrong key would be refused all the same.
        if not (0 < len(key) <= LONGEST_KEY and key.isprintable()):
            detail = f"Idempotency-Key: 1 to {LONGEST_KEY} printable characters"
            await problems.problem(request, 422, detail)(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            await Response(status_code=problems.HUNG_UP)(scope, receive, send)
            return
        # With the caller: two clients may choose the same key, and must not see each other's
        # answers. A key may be made anew under its name and see less than before.
        limits = () if caller.limits is None else (str(caller.limits),)
        name = _digest(caller.name, *limits, scope["path"], key)
        # The request's own digest tells a retry from a key that is used for something else.
        # What it accepts belongs to it: rows as CSV are no answer to who wants JSON.
        accept = _header(scope, b"accept") or "*/*"
        request_digest = _digest(scope["query_string"].decode("latin-1"), body.hex(), accept)
        known = self._answers.get(name)
        if known is not None and known["asked"] != request_digest:
            detail = "Idempotency-Key: it came before with another request; take a new one"
            await problems.problem(request, 422, detail)(scope, receive, send)
        elif known is not None:
            await _replay(known, send)
        elif name in self._at_work:
            detail = "Idempotency-Key: the first request with it is still at work; send it again"
            headers = {"Retry-After": "1"}
            await problems.problem(request, 409, detail, headers=headers)(scope, receive, send)
        else:
            await self._first(name, request_digest, body, scope, receive, send)

    async def _first(
        self,
        name: str,
        request_digest: str,
        body: bytes,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        answer = _Recorded(send)
        sent = False

        async def again() -> Message:
            nonlocal sent
            # Behind the body Starlette listens for a disconnect; that comes from the real channel.
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        # In memory: after a crash nobody is at work any more, and the key may be tried again.
        self._at_work.add(name)
        try:
            await self._app(scope, again, answer.send)
            # What another try may answer otherwise is not kept.
            if answer.whole and answer.status < 500 and answer.status not in _NOT_KEPT:
                self._keep(name, answer.document(request_digest), scope["path"])
        finally:
            self._at_work.discard(name)

    def _keep(self, name: str, document: dict[str, Any], path: str) -> None:
        try:
            self._answers.put(name, document)
        except Retryable as why:
            # The answer is out: whoever has it need not send the request again.
            say(f"api: POST {path}: the answer is not kept; sent again, it is done again: {why}")


class _Recorded:
    """An answer as it goes out, kept as far as it is small."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 500
        self._headers: list[list[str]] = []
        self._body = bytearray()
        self.whole = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = [
                [name.decode("latin-1"), value.decode("latin-1")]
                for name, value in message["headers"]
                if name.lower() in _KEPT_HEADERS
            ]
        elif message["type"] == "http.response.body":
            if len(self._body) <= LARGEST_KEPT:
                # An answer that grows beyond what is kept goes out all the same, it is only not
                # remembered.
                self._body += message.get("body", b"")
            ended = not message.get("more_body", False)
            self.whole = ended and len(self._body) <= LARGEST_KEPT
        await self._send(message)

    def document(self, asked: str) -> dict[str, Any]:
        """What is kept of it."""
        return {
            "asked": asked,
            "status": self.status,
            "headers": self._headers,
            "body": base64.b64encode(bytes(self._body)).decode(),
        }


async def _replay(known: MutableMapping[str, Any], send: Send) -> None:
    body = base64.b64decode(known["body"])
    headers = [(name.encode(), value.encode("latin-1")) for name, value in known["headers"]]
    # The header says that nothing was done this time.
    headers += [(b"content-length", str(len(body)).encode()), (b"idempotency-replayed", b"true")]
    await send({"type": "http.response.start", "status": known["status"], "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes | None:
    """The body, which is bounded further out; None where the caller left in the middle of it."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            # Its beginning would be kept as the request of this key.
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _header(scope: Scope, name: bytes) -> str | None:
    values = [value for known, value in scope.get("headers", ()) if known == name]
    return values[0].decode("latin-1") if values else None


def _digest(*parts: str) -> str:
    # A zero byte between parts, or "a" + "bc" would be "ab" + "c"; no HTTP header can hold one.
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:40]
