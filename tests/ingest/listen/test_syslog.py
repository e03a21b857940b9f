"""Syslog comes in over real sockets; what Kafka would get is kept in memory."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from ingest.listen.sink import SendOutcome, TopicMessage
from tests.event_loop import run_apart
from tests.ingest.listen.memory_sink import MemorySink, header
from tests.ingest.listen.running import TCP, UDP, listening, send, until

LINES = [b"<34>Oct 11 22:14:15 b1 su: %d \xff\x00 any bytes" % i for i in range(50)]


@pytest.mark.parametrize("framing", ["octets", "lines"])
def test_messages_over_tcp_go_to_the_topic_unchanged(tmp_path: Path, framing: str) -> None:
    sink = MemorySink()

    async def run() -> None:
        async with listening(tmp_path, sink, syslog=[TCP]) as listener:
            counted = (b"%d %b" % (len(line), line) for line in LINES)
            data = b"".join(counted) if framing == "octets" else b"\n".join(LINES)
            await send(listener.tcp[0].port, data)
            await until(lambda: len(sink.kept) == len(LINES))

    run_apart(run())
    assert [message.value for message in sink.kept] == LINES
    first = sink.kept[0]
    assert first.topic == "logs.syslog"
    assert header(first, "host") == b"127.0.0.1"
    assert re.fullmatch(rb"tcp://127\.0\.0\.1:\d+", header(first, "sender") or b"")
    assert (header(first, "arrived") or b"").endswith(b"+00:00")
    assert header(first, "refused") is None


def test_nothing_more_is_read_while_kafka_takes_nothing(tmp_path: Path) -> None:
    opened = False
    sink = MemorySink(lambda message: SendOutcome.KEPT if opened else None)
    line = b"<34>" + b"x" * 1000 + b"\n"
    total, buffer = 14_000, 2 * 1024 * 1024

    async def run() -> None:
        nonlocal opened
        async with listening(tmp_path, sink, syslog=[TCP], buffer_mb=2) as listener:
            sending = asyncio.create_task(send(listener.tcp[0].port, line * total))
            await until(lambda: listener.outbox.bytes > buffer // 8)
            await asyncio.sleep(0.3)
            assert not sending.done()
            # A quarter of the room is what one peer may have.
            assert listener.outbox.bytes <= buffer // 4
            opened = True
            while not sending.done() or len(sink.kept) < total:
                sink.answer()
                await asyncio.sleep(0)
            await sending

    run_apart(asyncio.wait_for(run(), 60))
    assert len(sink.kept) == total


def test_what_kafka_does_not_take_at_the_end_is_sent_by_the_next_start(tmp_path: Path) -> None:
    silent, sink = MemorySink(lambda message: None), MemorySink()

    async def run() -> None:
        async with listening(tmp_path, silent, syslog=[TCP]) as listener:
            await send(listener.tcp[0].port, b"\n".join(LINES) + b"\n")
            await until(lambda: listener.outbox.messages == len(LINES))
        async with listening(tmp_path, sink, syslog=[TCP]) as listener:
            await until(lambda: len(sink.kept) == len(LINES))
        async with listening(tmp_path, sink, syslog=[TCP]):
            pass

    run_apart(run())
    assert [message.value for message in sink.kept] == LINES
    assert header(sink.kept[0], "host") == b"127.0.0.1"


def test_what_a_connection_had_sent_half_at_the_end_is_kept_with_the_reason(tmp_path: Path) -> None:
    sink = MemorySink()

    async def run() -> None:
        async with listening(tmp_path, sink, syslog=[TCP]) as listener:
            _, writer = await asyncio.open_connection("127.0.0.1", listener.tcp[0].port)
            writer.write(b"<1>whole\n<1>half")
            await until(lambda: len(sink.kept) == 1)
        writer.close()

    run_apart(run())
    assert sink.kept[1].value == b"<1>half"
    assert b"listener ended" in (header(sink.kept[1], "refused") or b"")


def test_what_kafka_refuses_is_sent_again_and_what_it_never_takes_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = 0

    def outcome(message: TopicMessage) -> SendOutcome:
        nonlocal tries
        if message.value == b"<1>never":
            return SendOutcome.NEVER
        tries += 1
        return SendOutcome.AGAIN if tries == 1 else SendOutcome.KEPT

    sink = MemorySink(outcome)

    async def run() -> None:
        async with listening(tmp_path, sink, syslog=[TCP]) as listener:
            await send(listener.tcp[0].port, b"<1>again\n<1>never\n")
            await until(lambda: listener.outbox.messages == 0 and len(sink.kept) == 1)
            status = listener.status()
            assert (status.retried, status.never) == (1, 1)

    run_apart(run())
    assert (tmp_path / "listen" / "never.ndjson").exists()
    assert "refused 8 bytes for good" in capsys.readouterr().err


def test_routes_go_by_program_host_and_peer_and_ports_have_sources(tmp_path: Path) -> None:
    sink = MemorySink()
    routes = [
        {"program": "nginx", "host": "w1", "source": "nginx"},
        {"program": "sshd", "source": "sshd"},
        {"peer": "192.0.2.0/24", "source": "cisco_asa"},
    ]

    async def run() -> None:
        ports = [TCP, TCP | {"source": "zeek:dns"}, TCP | {"tenant": "acme"}]
        async with listening(tmp_path, sink, syslog=ports, routes=routes) as listener:
            lines = (
                b"<34>Oct 11 22:14:15 w1 nginx: a\n"
                b"<34>1 2026-03-02T09:00:01Z w2 nginx - - - b\n"
                b"<34>1 2026-03-02T09:00:01Z w2 sshd 1 - - c\n"
                b"no syslog\n"
            )
            for tcp in listener.tcp:
                await send(tcp.port, lines)
            await until(lambda: len(sink.kept) == 12)

    run_apart(run())
    topics = {message.topic: message.value[-1:] for message in sink.kept}
    # What comes by a tenant's port is the tenant's, whatever a route makes of it.
    own = {f"logs.tenant-acme.{source}" for source in ("nginx", "sshd", "syslog")}
    assert topics.keys() == {"logs.nginx", "logs.sshd", "logs.syslog", "logs.zeek.dns", *own}
    assert topics["logs.nginx"] == b"a"
    assert topics["logs.sshd"] == b"c"


def test_connections_are_bounded_and_idle_ones_closed(tmp_path: Path) -> None:
    sink = MemorySink()

    async def run() -> None:
        bounds = {"connections_of_peer": 2, "idle_seconds": 0.3}
        async with listening(tmp_path, sink, syslog=[TCP], **bounds) as listener:
            port = listener.tcp[0].port
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await until(lambda: listener.tcp[0].connections == 2)
            reader, _ = await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionError):
                assert await reader.read() == b""
            await until(lambda: listener.tcp[0].connections == 0)
            assert sum(listener.status().turned_away.values()) == 3
            for _, writer in held:
                writer.close()

    run_apart(run())


def test_datagrams_are_messages_and_what_the_kernel_drops_is_counted(tmp_path: Path) -> None:
    opened = False
    sink = MemorySink(lambda message: SendOutcome.KEPT if opened else None)
    sent = 4000

    async def run() -> tuple[int, int]:
        nonlocal opened
        small = {"buffer_mb": 1, "udp_buffer_mb": 0.1, "message_bytes": 480}
        async with listening(tmp_path, sink, syslog=[UDP], **small) as listener:
            udp = listener.udp[0]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for i in range(sent):
                    sender.sendto(b"<34>%06d " % i + b"x" * 400, ("127.0.0.1", udp.port))
                    if i % 100 == 0:
                        await asyncio.sleep(0)
                await asyncio.sleep(0.1)
                dropped = udp.dropped() or 0
                opened = True
                while listener.outbox.messages:
                    sink.answer()
                    await asyncio.sleep(0.01)
                sender.sendto(b"y" * 500, ("127.0.0.1", udp.port))
                await until(lambda: b"y" * 500 in {message.value for message in sink.kept})
        return dropped, len(sink.kept) - 1

    dropped, kept = run_apart(run())
    assert dropped > 0
    assert kept + dropped == sent
    assert b"500 bytes" in (header(sink.kept[-1], "refused") or b"")
