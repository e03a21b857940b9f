"""Syslog over UDP (RFC 5426): a datagram is a message.

Nobody can be told to wait. So while there is no room nothing is read, and what then finds no place
in the kernel's buffer is counted by the kernel, and told.
"""

from __future__ import annotations

import asyncio
import socket
import time

from infra.config.listen_section import SyslogListenerSettings
from infra.config.settings import ListenSettings
from infra.process.log import News, say
from ingest.listen.frames import Frame
from ingest.listen.intake import Origin, SyslogIntake, bound, dropped

_LARGEST = 65536
_AT_ONCE = 256
_END_SECONDS = 1.0
_PEER = "udp"
"""All senders share one part of the room: addresses of datagrams are easily forged."""


class SyslogUdp:
    """One port."""

    def __init__(
        self, options: SyslogListenerSettings, listen: ListenSettings, intake: SyslogIntake
    ) -> None:
        self._options = options
        self._listen = listen
        self._intake = intake
        self._sock = bound(options.host, options.port, socket.SOCK_DGRAM, "listen.syslog")
        requested = int(listen.udp_buffer_mb * 1024 * 1024)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, requested)
        # Linux doubles what is asked for, and halves nothing of what it grants (socket(7)).
        granted = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        if granted < requested:
            say(
                f"listen: {self.address}: the kernel grants {granted} of {requested} bytes; "
                f"sysctl -w net.core.rmem_max={requested} allows them"
            )
        self._paused: asyncio.Task[None] | None = None
        self._news = News(say)
        self._last: int | None = None

    @property
    def address(self) -> str:
        """What it listens on."""
        host, port = self._sock.getsockname()[:2]
        return f"udp {host}:{port}"

    @property
    def port(self) -> int:
        """The port, also where a free one was asked for."""
        return int(self._sock.getsockname()[1])

    def start(self) -> None:
        """Begin to read."""
        asyncio.get_running_loop().add_reader(self._sock, self._read)

    def stop(self) -> None:
        """Read what the kernel has, as nobody would send it again, and close."""
        if self._paused is not None:
            self._paused.cancel()
        asyncio.get_running_loop().remove_reader(self._sock)
        end = time.monotonic() + _END_SECONDS
        while time.monotonic() < end and self._take():
            pass
        self.dropped()
        self._sock.close()

    def dropped(self) -> int | None:
        """Datagrams that the kernel dropped since the start; says so when there are more. None:
        this system does not tell."""
        count = self._last if self._sock.fileno() < 0 else dropped(self._sock)
        if count and count > (self._last or 0):
            self._news.tell(f"listen: {self.address}: the kernel dropped {count} datagrams so far")
        self._last = count
        return count

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            # Asked before reading: what is read has to be taken.
            if not self._intake.outbox.has_room(_PEER, _LARGEST):
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._sock)
                self._paused = loop.create_task(self._resume())
                return
            if not self._take():
                return

    async def _resume(self) -> None:
        await self._intake.outbox.room(_PEER, _LARGEST)
        self._paused = None
        self.start()

    def _take(self) -> bool:
        """Take one datagram; False: there is none."""
        try:
            data, peer = self._sock.recvfrom(_LARGEST)
        except BlockingIOError:
            return False
        except OSError as error:  # such as one of ICMP's, about an answer that was never sent
            self._news.tell(f"listen: {self.address}: {error.strerror}")
            return True
        if not data.strip(b"\r\n\0"):
            return True
        longest = self._listen.message_bytes
        why = f"a datagram of {len(data)} bytes; {longest} are taken" if len(data) > longest else ""
        origin = Origin.of("udp", peer[:2])
        message = self._intake.message(Frame(data, why), origin, self._options)
        self._intake.outbox.post(message, _PEER)
        return True
