"""Addresses that look public and are a cloud's own, or a site's, are not called."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from alerts.delivery.webhook import Undelivered, is_public, post
from infra.config.settings import WebhookSettings


@pytest.mark.parametrize(
    "address",
    ["fec0::1", "feff::1", "168.63.129.16", "::ffff:168.63.129.16", "192.0.0.192", "fe80::1%eth0"],
)
def test_what_only_looks_public_is_not(address: str) -> None:
    assert not is_public(address)


@contextmanager
def endless() -> Iterator[int]:
    """A server that answers one byte of a header at a time, for as long as it is listened to."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not over.wait(0.1):
                    connection.sendall(b"a")
            except OSError:
                return

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        over.set()
        thread.join()
        listening.close()


def test_a_hook_that_answers_byte_by_byte_is_given_up() -> None:
    with endless() as port:
        hook = WebhookSettings(
            name="slow",
            url=f"http://127.0.0.1:{port}/",
            secret="s" * 16,
            allow_private=True,
            timeout_seconds=1,
        )
        with pytest.raises(Undelivered):
            post(hook, "a:1", b"{}", 0)
