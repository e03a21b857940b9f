"""Syslog over TCP and TLS (RFC 6587, RFC 5425)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any

from infra.config.listen_section import SyslogListenerSettings
from infra.config.settings import ListenSettings
from ingest.listen.frames import Frame, Framer
from ingest.listen.intake import Origin, SyslogIntake, bound

_CHUNK = 32 * 1024
# Whoever connects and says nothing holds one of the places for so long.
_HANDSHAKE_SECONDS = 10.0
_STOPPED = "the listener ended in the middle of it"
_BROKE = "the connection broke in the middle of it"


class _Connection(asyncio.BufferedProtocol):
    """The bytes of one connection, at most two chunks of them unread by us."""

    def __init__(self, serve: Callable[[_Connection], Coroutine[Any, Any, None]]) -> None:
        self._serve = serve
        self._buffer = bytearray(_CHUNK)
        self._chunks: deque[bytes] = deque()
        self._more = asyncio.Event()
        self.cut: str | None = None
        """None: there may come more. Empty: the sender ended it."""
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        self.transport = transport  # type: ignore[assignment]  # the loop gives a stream's
        self.task = asyncio.get_running_loop().create_task(self._serve(self))

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """They are there. No more is read until these are taken."""
        # A copy: the loop writes the next bytes into the same buffer.
        self._chunks.append(bytes(self._buffer[:nbytes]))
        if self.transport is not None:
            self.transport.pause_reading()
        self._more.set()

    def eof_received(self) -> bool:
        """The sender has said all."""
        self.end("")
        # By this asyncio closes the transport: a syslog sender is never answered.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, in order or not."""
        self.end("" if exc is None else _BROKE)

    def end(self, cut: str) -> None:
        """Take no more bytes; `cut`: why, where the sender did not wish it."""
        if self.cut is None:
            self.cut = cut
            if self.transport is not None:
                self.transport.pause_reading()
        self._more.set()

    async def read(self, idle_seconds: float) -> bytes:
        """The next bytes; none: it has ended. Raises `TimeoutError`."""
        while not self._chunks and self.cut is None:
            self._more.clear()
            if self.transport is not None:
                self.transport.resume_reading()
            async with asyncio.timeout(idle_seconds):
                await self._more.wait()
        return self._chunks.popleft() if self._chunks else b""


class SyslogTcp:
    """One port. Nothing is read from a connection whose messages find no room."""

    def __init__(
        self,
        options: SyslogListenerSettings,
        listen: ListenSettings,
        intake: SyslogIntake,
        context: ssl.SSLContext | None,
    ) -> None:
        self._options = options
        self._listen = listen
        self._intake = intake
        self._context = context
        self._sock = bound(options.host, options.port, socket.SOCK_STREAM, "listen.syslog")
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._peers: Counter[str] = Counter()
        self._stopping = False

    @property
    def address(self) -> str:
        """What it listens on."""
        host, port = self._sock.getsockname()[:2]
        return f"{self._options.protocol} {host}:{port}"

    @property
    def port(self) -> int:
        """The port, also where a free one was asked for."""
        return int(self._sock.getsockname()[1])

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    async def start(self) -> None:
        """Begin to take connections."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self._serve),
            sock=self._sock,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else _HANDSHAKE_SECONDS,
        )

    async def stop(self) -> None:
        """Take no more bytes; what was read goes to the outbox."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for connection in self._open:
            # What the kernel has is its sender's still, who sees the connection break.
            connection.end(_STOPPED)
        tasks = [connection.task for connection in self._open if connection.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, connection: _Connection) -> None:
        transport = connection.transport
        assert transport is not None
        peer = transport.get_extra_info("peername")
        if not peer or self._stopping:
            transport.abort()
            return
        certificate = _subject(transport.get_extra_info("peercert"))
        origin = Origin.of(self._options.protocol, peer[:2], certificate)
        if why := self._full(origin.address):
            self._intake.turn_away(why, f"a connection from {origin.address}")
            transport.abort()
            return
        self._open.add(connection)
        self._peers[origin.address] += 1
        try:
            await self._read(connection, origin)
        finally:
            self._open.discard(connection)
            self._peers[origin.address] -= 1
            if not self._peers[origin.address]:
                del self._peers[origin.address]
            transport.abort()

    def _full(self, address: str) -> str | None:
        if len(self._open) >= self._listen.connections:
            return "listen.connections are open"
        if self._peers[address] >= self._listen.connections_of_peer:
            return "listen.connections_of_peer are open from there"
        return None

    async def _read(self, connection: _Connection, origin: Origin) -> None:
        framer = Framer(self._listen.message_bytes, self._options.framing)
        try:
            while chunk := await connection.read(self._listen.idle_seconds):
                for frame in framer.feed(chunk):
                    await self._post(frame, origin)
        except TimeoutError:
            connection.end(f"the connection said nothing for {self._listen.idle_seconds:g} s")
            self._intake.turn_away("listen.idle_seconds are over", origin.address)
        for frame in framer.end(connection.cut or ""):
            await self._post(frame, origin)

    async def _post(self, frame: Frame, origin: Origin) -> None:
        message = self._intake.message(frame, origin, self._options)
        await self._intake.outbox.room(origin.address, message.size)
        self._intake.outbox.post(message, origin.address)


def _subject(certificate: Any) -> str | None:
    """The common name of a certificate, as `SSLSocket.getpeercert` shows it."""
    for names in (certificate or {}).get("subject", ()):
        for key, value in names:
            if key == "commonName":
                return str(value)
    return None
