"""TLS before Flight SQL: ended here, since pyarrow's gRPC keeps the certificate it began with.

Each connection is handed on, unread, to the socket file at which gRPC listens.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_CONNECTIONS = 256
"""Open at once; a further one is closed before it costs a handshake with gRPC."""
HANDSHAKE_SECONDS = 10.0
_PIECE = 1 << 18


class TlsFront:
    """Listens from the moment it is made, in a thread of its own, until `close`.

    `socket_file`: where gRPC listens, in a folder that is ours alone. Raises `OSError` where the
    port cannot be had.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext, socket_file: Path) -> None:
        self._socket_file = str(socket_file)
        self._open = 0
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="flight-tls", daemon=True)
        self._thread.start()
        listening = asyncio.start_server(
            self._hand_on,
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            limit=_PIECE,
        )
        try:
            # In that thread: the one that calls may run a loop already.
            self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        except OSError:
            self.close()
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listen no more, and cut what is open."""
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(5)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._loop.stop()

    def _run(self) -> None:
        self._loop.run_forever()
        # Only once they are over the loop may close: each still closes its sockets.
        self._loop.run_until_complete(_end(asyncio.all_tasks(self._loop)))
        self._loop.close()

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= _CONNECTIONS:
            writer.close()
            return
        self._open += 1
        ends = [writer]
        try:
            answers, questions = await asyncio.open_unix_connection(self._socket_file, limit=_PIECE)
            ends.append(questions)
            ways = [
                asyncio.create_task(_copy(reader, questions)),
                asyncio.create_task(_copy(answers, writer)),
            ]
            try:
                # TLS knows no half-closed connection: who closes one way is done with both.
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _end(ways)
        except OSError:
            pass  # gRPC has ended; the caller sees its connection close
        finally:
            self._open -= 1
            for end in ends:
                with suppress(OSError, RuntimeError):
                    end.close()


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end, or until either side is gone."""
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
