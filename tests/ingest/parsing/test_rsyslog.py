"""rsyslog with omkafka as docs/how-to/send-logs-with-rsyslog.md says, against a broker of ours."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics, free_port
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "send-logs-with-rsyslog.md"
SAMPLES = Path(__file__).parents[3] / "samples"
RSYSLOGD = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin:/sbin")
KAFKA = [*Path("/usr/lib").glob("**/rsyslog/omkafka.so")]

pytestmark = pytest.mark.skipif(
    RSYSLOGD is None or not KAFKA,
    reason="rsyslog with its Kafka output is not installed (Debian: rsyslog and rsyslog-kafka)",
)

LINES = (
    b"<86>1 2026-03-02T09:00:01.250000+00:00 b1 sshd 811 - - "
    b"Failed password for root from 203.0.113.9 port 4711 ssh2",
    b"<86>Mar  2 09:00:02 b1 sshd[811]: Failed password for invalid user "
    b"\xd0\xbc\tx\x1b[31m from 203.0.113.9 port 4712 ssh2",
    b"<85>Mar  2 09:00:03 b1 sudo:   bob : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/bin/id #011",
    b'<30>Mar  2 09:00:04 b1 nobody-knows-it[1]: 100% of {"a": "\\x22"} is kept',
    b"<30>Mar  2 09:00:05 b1 old-program[1]: caf\xe9 in Latin-1",
)


@pytest.fixture(scope="module")
def settings(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return load(home=tmp_path_factory.mktemp("rs"), kafka={"bootstrap": broker.address})


@pytest.fixture(scope="module")
def port(settings: Settings) -> Iterator[int]:
    """A running rsyslogd, and the TCP port it listens on."""
    ensure_topics(settings, ("syslog", "zeek:dns"))
    folder = settings.home
    tcp = free_port()
    (folder / "dns.log").write_bytes(b"")
    config = folder / "rsyslog.conf"
    config.write_text(configuration(settings, tcp, folder))
    command = [str(RSYSLOGD), "-n", "-f", str(config), "-i", str(folder / "pid")]
    checked = subprocess.run([*command, "-N1"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        _await(tcp, running, folder / "said")
        yield tcp
    finally:
        running.terminate()
        running.wait(30)


def configuration(settings: Settings, tcp: int, folder: Path) -> str:
    """The page's own text, with this test's addresses and folders."""
    block = re.search(r"^```rsyslog\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert block is not None
    udp = free_port()
    text = block[1].replace('type="imtcp" port="514"', f'type="imtcp" port="{tcp}"')
    text = text.replace('type="imudp" port="514"', f'type="imudp" port="{udp}"')
    text = text.replace("127.0.0.1:9092", settings.kafka.bootstrap)
    text = text.replace("/var/spool/rsyslog", str(folder))
    text = text.replace("/opt/zeek/logs/current", str(folder))
    assert "514" not in re.findall(r'port="(\d+)"', text)
    return text


def _await(tcp: int, running: subprocess.Popen[bytes], said: Path) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        assert running.poll() is None, said.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", tcp)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"rsyslogd does not listen: {said.read_text()}")


def received(settings: Settings, topic: str, wanted: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap,
            "group.id": f"read-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    end = time.monotonic() + 60
    try:
        while len(found) < wanted and time.monotonic() < end:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def test_syslog_arrives_byte_by_byte_and_becomes_events(settings: Settings, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sender:
        sender.sendall(b"".join(line + b"\n" for line in LINES))
    got = received(settings, "logs.syslog", len(LINES))
    assert sorted(got) == sorted(LINES)
    now = datetime(2026, 3, 2, 9, 1, tzinfo=UTC)
    records = [Record(str(at), "syslog", "live", now, raw) for at, raw in enumerate(sorted(got))]
    rows = event_rows(records, ParseSettings(zones={"syslog": "UTC"}))
    dead = [reason for row in rows if (reason := row.get("dead_letter_reason"))]
    assert len(dead) == 1
    assert dead[0].startswith("not valid UTF-8")
    assert all(row["time"].date() == now.date() for row in rows)
    assert {row.get("src_ip") for row in rows} == {"203.0.113.9", None}


def test_a_file_arrives_line_by_line(settings: Settings, port: int) -> None:
    lines = (SAMPLES / "zeek/json_corelight/NASHUA_dns.log").read_bytes().splitlines()[:50]
    with (settings.home / "dns.log").open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    got = received(settings, "logs.zeek.dns", len(lines))
    assert got == lines
    now = datetime.now(UTC)
    records = [Record(str(at), "zeek:dns", "live", now, raw) for at, raw in enumerate(got)]
    rows = event_rows(records, ParseSettings())
    assert [row.get("dead_letter_reason") for row in rows] == [None] * len(lines)
    assert {row["class_uid"] for row in rows} == {4003}
