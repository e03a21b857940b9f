"""A listener on free ports, over a sink in memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from infra.config.settings import load
from ingest.listen.service import LogListener
from tests.ingest.listen.memory_sink import MemorySink

TCP: dict[str, Any] = {"protocol": "tcp", "port": 0}
UDP: dict[str, Any] = {"protocol": "udp", "port": 0}


@asynccontextmanager
async def listening(home: Path, sink: MemorySink, **listen: Any) -> AsyncIterator[LogListener]:
    """One that is stopped at the end."""
    settings = load(home=home, listen={"end_seconds": 0.3, **listen}, tenants=["acme"])
    listener = LogListener(settings, sink)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


async def send(port: int, data: bytes, context: ssl.SSLContext | None = None) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(data)
    await writer.drain()
    writer.close()
