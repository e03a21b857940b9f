"""What the doors of the listener share: how a syslog message is dressed, and what is counted."""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from infra.config.listen_section import SyslogListenerSettings
from infra.errors import Usage
from infra.process.log import News, say
from ingest.decoding.decoding import REFUSED
from ingest.listen.frames import Frame
from ingest.listen.outbox import Outbox
from ingest.listen.routing import Router
from ingest.listen.sink import TopicMessage


@dataclass(frozen=True)
class Origin:
    """Where a message comes from."""

    protocol: str
    address: str
    port: int
    certificate: str | None = None
    """Whom the sender's certificate names."""

    @classmethod
    def of(cls, protocol: str, peer: tuple[str, int], certificate: str | None = None) -> Origin:
        """From what the socket says of its other end."""
        # A socket for both families shows IPv4 within IPv6; a link's name is left out.
        address = peer[0].removeprefix("::ffff:") if "." in peer[0] else peer[0].partition("%")[0]
        return cls(protocol, address, peer[1], certificate)

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """As every message from there carries it: `host` (who sent it), `sender`, and `arrived`,
        as the broker's time is later while it is away."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        fields = {
            "host": self.address,
            "sender": f"{self.protocol}://{host}:{self.port}",
            "arrived": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        if self.certificate is not None:
            fields["certificate"] = self.certificate
        return tuple((name, value.encode()) for name, value in fields.items())


@dataclass
class SyslogIntake:
    """Takes frames to the outbox."""

    outbox: Outbox
    router: Router
    refused: int = 0
    """Frames that are no message; each goes to the topic with its reason."""
    turned_away: Counter[str] = field(default_factory=Counter)
    news: News = field(default_factory=lambda: News(say))

    def message(self, frame: Frame, origin: Origin, port: SyslogListenerSettings) -> TopicMessage:
        """A frame that came in by a port as it goes to its topic: bytes unchanged."""
        headers = origin.headers
        if frame.refused:
            self.refused += 1
            headers = (*headers, (REFUSED, frame.refused.encode()))
        readable = b"" if frame.refused else frame.data
        topic = self.router.topic(readable, origin.address, port.source, port.tenant)
        return TopicMessage(topic, frame.data, headers)

    def turn_away(self, why: str, who: str) -> None:
        """Count what is not taken, and say so once in a while."""
        self.turned_away[why] += 1
        self.news.tell(f"listen: {who} turned away: {why}")


def bound(host: str, port: int, kind: socket.SocketKind, setting: str) -> socket.socket:
    """A socket on an address. Raises `Usage` in one sentence where it cannot be had."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
    made.setblocking(False)
    if kind is socket.SOCK_STREAM:
        # Else a restart fails for a minute, while connections of before linger in TIME_WAIT.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        low = " (a port below 1024 needs CAP_NET_BIND_SERVICE)" if 0 < port < 1024 else ""
        raise Usage(
            f"{setting}: cannot listen on {host}:{port} ({error.strerror}){low}; "
            "stop what listens there or choose another"
        ) from None
    return made


def dropped(sock: socket.socket, tables: tuple[str, ...] = ("udp", "udp6")) -> int | None:
    """Datagrams that the kernel dropped at a socket for want of room; None: it does not tell.

    The last column of Linux's `/proc/net/udp` (proc_net_udp(5)), found by the socket's inode.
    """
    inode = str(socket_inode(sock))
    for table in tables:
        try:
            rows = Path("/proc/self/net", table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if len(columns) > 12 and columns[9] == inode:
                return int(columns[-1])
    return None


def socket_inode(sock: socket.socket) -> int:
    """The number by which the kernel's tables name a socket."""
    return Path(f"/proc/self/fd/{sock.fileno()}").stat().st_ino
