"""The listener as a whole: its doors, the outbox behind them, and what is kept at the end."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from infra.config.settings import Settings
from infra.errors import Retryable, Usage
from infra.process.live_certificate import LiveCertificate
from infra.process.log import News, say
from infra.storage.file_lock import ExclusiveLock
from ingest.listen.intake import SyslogIntake, bound
from ingest.listen.listener_status import (
    STATUS_SECONDS,
    ListenerStatus,
    first_status,
    listener_folder,
    write_listener_status,
)
from ingest.listen.otlp_grpc import OtlpGrpc
from ingest.listen.otlp_http import HttpServer, OtlpHttp, http_server
from ingest.listen.otlp_receiver import OtlpReceiver
from ingest.listen.outbox import Outbox
from ingest.listen.routing import Router
from ingest.listen.sink import SendOutcome, Sink
from ingest.listen.spool import Spool
from ingest.listen.syslog_tcp import SyslogTcp
from ingest.listen.syslog_udp import SyslogUdp
from ingest.listen.tls import certificate_files, grpc_credentials
from ingest.parsing.source import lookup

_SPOOL_PEER = "spool"
OWN_SOURCE = "headgate"


class LogListener:
    """All doors that the settings name. Make it within the event loop."""

    def __init__(self, settings: Settings, sink: Sink) -> None:
        listen = settings.listen
        self._settings = settings
        self._sink = sink
        self._spool = Spool(listener_folder(settings))
        limit = int(listen.buffer_mb * 1024 * 1024)
        self.outbox = Outbox(sink, limit, self._spool.keep)
        self.intake = SyslogIntake(self.outbox, Router(listen.routes, settings.kafka))
        self.tcp: list[SyslogTcp] = []
        self.udp: list[SyslogUdp] = []
        self.grpc: OtlpGrpc | None = None
        self._http: HttpServer | None = None
        self._http_socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._news = News(say)
        self._left = 0
        self._open_doors()
        self._status = first_status(self.addresses)

    def _open_doors(self) -> None:
        listen = self._settings.listen
        files = certificate_files(listen)
        context = None if files is None else LiveCertificate(files).context()
        for options in listen.syslog:
            if options.protocol == "udp":
                self.udp.append(SyslogUdp(options, listen, self.intake))
            else:
                tls = context if options.protocol == "tls" else None
                self.tcp.append(SyslogTcp(options, listen, self.intake, tls))
        otlp = listen.otlp
        if otlp.http_port is None and otlp.grpc_port is None:
            return
        door = OtlpReceiver(self._settings, self.intake)
        if otlp.http_port is not None:
            app = OtlpHttp(door, otlp.request_bytes, otlp.unpacked_bytes).app
            end = max(1, int(listen.end_seconds))
            self._http = http_server(app, context if otlp.tls else None, end)
            self._http_socket = bound(
                otlp.host, otlp.http_port, socket.SOCK_STREAM, "listen.otlp.http_port"
            )
        if otlp.grpc_port is not None:
            try:
                credentials = grpc_credentials(files) if files is not None and otlp.tls else None
                self.grpc = OtlpGrpc(door, otlp, credentials)
            except RuntimeError as error:
                raise Usage(
                    f"listen.otlp.grpc_port: cannot listen on {otlp.host}:{otlp.grpc_port} "
                    f"({error}); stop what listens there or choose another"
                ) from None

    @property
    def http_port(self) -> int:
        """The port of OTLP over HTTP, also where a free one was asked for."""
        assert self._http_socket is not None
        return int(self._http_socket.getsockname()[1])

    @property
    def addresses(self) -> tuple[str, ...]:
        """What it listens on."""
        addresses = [door.address for door in self.tcp] + [door.address for door in self.udp]
        if self._http_socket is not None:
            addresses.append(f"otlp+http {self._settings.listen.otlp.host}:{self.http_port}")
        if self.grpc is not None:
            addresses.append(self.grpc.address)
        return tuple(addresses)

    async def start(self) -> None:
        """Send what the last start left, and open the doors."""
        left = list(self._spool.left())
        self._left = len(left)
        for message in left:
            self.outbox.post(message, _SPOOL_PEER, self._was_left)
        if left:
            say(f"listen: {len(left)} messages that the last start left are sent first")
        for tcp in self.tcp:
            await tcp.start()
        for udp in self.udp:
            udp.start()
        if self._http is not None:
            assert self._http_socket is not None
            # Bound since the listener was made, so that a port that is taken is said before
            # anything starts; open from here on.
            self._http_socket.listen(128)
            serving = self._http.serve(sockets=[self._http_socket])
            self._serving = asyncio.get_running_loop().create_task(serving)
        if self.grpc is not None:
            await self.grpc.start()
        for address in self.addresses:
            say(f"listen: {address}")

    def _was_left(self, _outcome: SendOutcome, _why: str) -> None:
        self._left -= 1
        if self._left == 0:
            # Else they would be sent once more after a crash.
            self._spool.leave(())

    def require_open(self) -> None:
        """Raises `Retryable` where a door has closed by itself."""
        if self._serving is not None and self._serving.done():
            raise Retryable(f"listen: OTLP over HTTP ended by itself: {self._serving.exception()}")

    async def stop(self) -> int:
        """Close the doors and wait for Kafka; what it does not take is left for the next start.

        Returns how many messages that are.
        """
        seconds = self._settings.listen.end_seconds
        for udp in self.udp:
            udp.stop()
        # What was read must find room from here on, or stopping would wait for a broker that may be
        # away.
        self.outbox.lift_bound()
        for tcp in self.tcp:
            await tcp.stop()
        if self._http is not None:
            self._http.should_exit = True
        if self.grpc is not None:
            await self.grpc.stop(seconds)
        if self._serving is not None:
            await self._serving
        await self.outbox.empty(seconds)
        left = self._spool.leave(self.outbox.unsent())
        if left:
            say(f"listen: Kafka took nothing of {left} messages; the next start sends them")
        self.write_status()
        return left

    def status(self) -> ListenerStatus:
        """Where it stands."""
        totals, outbox = self.outbox.totals, self.outbox
        drops = {udp.address: udp.dropped() for udp in self.udp}
        return replace(
            self._status,
            at=time.time(),
            messages=dict(totals.messages),
            bytes=totals.bytes,
            waiting_messages=outbox.messages,
            waiting_bytes=outbox.bytes,
            waits_seconds=round(outbox.waits_seconds, 1),
            retried=totals.retried,
            never=totals.never,
            refused=self.intake.refused,
            connections=sum(tcp.connections for tcp in self.tcp),
            turned_away=dict(self.intake.turned_away),
            udp_dropped={address: count for address, count in drops.items() if count is not None},
        )

    def write_status(self) -> None:
        """Leave it for `headgate status` and the metrics; a full disk does not stop us."""
        try:
            write_listener_status(self._settings, self.status())
            self._news.over()
        except OSError as error:
            self._news.tell(f"listen: its status cannot be written ({error.strerror})")


async def serve_doors(
    settings: Settings, make_sink: Callable[[asyncio.AbstractEventLoop], Sink]
) -> int:
    """Listen until SIGINT or SIGTERM. 0, or 1 where messages were left for the next start.

    Raises `Usage` for an address that cannot be had, `Taken` while another listener of this home
    runs, and `Retryable` when a door closes by itself.
    """
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    # Two listeners of one home would send what was left twice.
    lock = ExclusiveLock(
        listener_folder(settings) / "lock",
        lambda holder: (
            f"another listener of this home runs (process {holder}); stop it, or give "
            "this one another --home"
        ),
    )
    try:
        sink = make_sink(loop)
        try:
            return await _until(ending, LogListener(settings, sink))
        finally:
            # In a thread: closing waits for Kafka, whose answers come back through this loop.
            await asyncio.to_thread(sink.close)
    finally:
        lock.release()


async def _until(ending: asyncio.Event, listener: LogListener) -> int:
    await listener.start()
    while not ending.is_set():
        listener.write_status()
        listener.require_open()
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), STATUS_SECONDS)
    return 1 if await listener.stop() else 0


def require_wanted(settings: Settings) -> None:
    """Raises `Usage` where the settings name nothing to listen on."""
    if not settings.listen.wanted:
        raise Usage(
            "nothing to listen on; set [[listen.syslog]], or otlp.http_port in [listen] "
            "(docs/reference/settings.md)"
        )


def require_listen_sources(settings: Settings) -> None:
    """Raises `Usage` for a source that there is not, and for the one that is ours."""
    for name in settings.listen.sources:
        lookup(name)
        if name == OWN_SOURCE:
            raise Usage(f"listen: source '{name}' is for what we say of ourselves; use another")
