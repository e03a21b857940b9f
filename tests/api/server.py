"""The API as `headgate api` serves it, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from api.cli import listen_on
from api.serving import base_url, make_server
from infra.config.settings import Settings


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """Its address, while it runs."""
    listening = listen_on("127.0.0.1", 0)
    server = make_server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield base_url(settings, "127.0.0.1", listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
