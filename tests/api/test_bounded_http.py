"""A connection that says too little is closed; one that waits for its answer is not."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn

from infra.process import bounded_http
from infra.process.bounded_http import BoundedHttp

ANSWER_SECONDS = 1.0


async def _app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await asyncio.sleep(ANSWER_SECONDS)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(bounded_http, "REQUEST_SECONDS", 0.4)
    monkeypatch.setattr(bounded_http, "_LOOK_SECONDS", 0.05)
    config = uvicorn.Config(_app, http=BoundedHttp, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
    ],
    ids=["nothing", "half a header", "half a body"],
)
def test_what_does_not_come_in_full_is_closed(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sent)
        began = time.monotonic()
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""
        assert time.monotonic() - began < 5


def test_an_answer_may_take_longer(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 204")
