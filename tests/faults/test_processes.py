"""What a running platform rests on dies, hangs or changes; what comes in is hostile. All is kept.

One driver lives through all of it, so only one start is paid for.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from confluent_kafka.cimpl import NewPartitions

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, admin, ensure_topics
from infra.process.subprocesses import PlatformProcess
from infra.spark.worker_daemon import is_daemon
from tests.recovery import judge
from tests.recovery.flow import SOURCES, Flow
from tests.recovery.plant import batches, complaints, driver, settle, until

SEED = 20261122
PAUSE_SECONDS = 60
WORKER_KILLS = 3


@pytest.fixture
def settings(own_broker: Broker, tmp_path: Path) -> Settings:
    made = load(home=tmp_path / "home", kafka={"bootstrap": own_broker.address})
    ensure_topics(made, (*SOURCES, *POISONED))
    return made


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_a_platform_lives_through_what_happens_to_it(
    settings: Settings, own_broker: Broker, seed: int
) -> None:
    live(settings, own_broker, seed, PAUSE_SECONDS)


def live(settings: Settings, broker: Broker, seed: int, pause: float) -> None:
    """One driver through all of it; `pause`: seconds for which the broker hangs."""
    chance = random.Random(seed)
    shuffled = Shuffled(datetime.now(UTC))
    flow = Flow(settings, seed, per_second=30).start()
    with driver(settings) as running:
        on(settings, running)
        flow.send(*poison())
        flow.send(*extreme_times())
        flow.send(*shuffled.lines(chance))
        on(settings, running)
        kill_workers(settings, running, chance)
        grow(settings, flow)
        freeze(broker, pause)
        on(settings, running)
        flow.stop()
        settle(settings, running, len(flow.accepted))
        said = running.log.read_text("utf-8", "replace")
    assert "stopped for good" not in said
    assert complaints(settings, flow.accepted) == []
    assert sum(part == 2 for _, part, _ in flow.accepted) >= 20
    assert judge.wrong_holders(settings.lake_root, shuffled.truth()) == []


def on(settings: Settings, running: PlatformProcess, more: int = 1) -> None:
    """Wait until a batch that begins now is in."""
    before = batches(settings)
    until(running, lambda: batches(settings) > before + more)


def workers(running: PlatformProcess) -> list[psutil.Process]:
    """The Python workers of Spark, without the daemon that forks them."""
    found = []
    for one in psutil.Process(running.process.pid).children(recursive=True):
        try:
            if is_daemon(one.cmdline()) and is_daemon((one.parent() or one).cmdline()):
                found.append(one)
        except psutil.Error:
            continue
    return found


def kill_workers(settings: Settings, running: PlatformProcess, chance: random.Random) -> None:
    """kill -9 of all Python workers, three times in a row, at moments by chance."""
    killed = 0
    for _ in range(WORKER_KILLS):
        until(running, lambda: len(workers(running)) > 0)
        for one in workers(running):
            with suppress(psutil.NoSuchProcess):  # it ended by itself in between
                one.kill()
                killed += 1
        time.sleep(chance.uniform(0, 2))
    assert killed >= WORKER_KILLS
    on(settings, running)


def freeze(broker: Broker, seconds: float) -> None:
    """The broker hangs and comes back."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def grow(settings: Settings, flow: Flow) -> None:
    """A topic gets two partitions more while it is read; lines go to the last of them."""
    name = f"{settings.kafka.topic_prefix}zeek.dns"
    client = admin(settings.kafka)  # its answers end with it
    (made,) = client.create_partitions([NewPartitions(name, 3)]).values()
    made.result(20)
    time.sleep(1)
    flow.send(*(("zeek:dns", dns(f"10.9.0.{n + 10}", n)) for n in range(20)), partition=2)


POISONED = ("zeek:conn", "nginx", "suricata", "winlogbeat", "cef", "json")


def poison() -> list[tuple[str, bytes | None]]:
    """A record of each kind that has broken a parser somewhere, for sources of each family."""
    deep = b"[" * 20_000 + b"]" * 20_000
    kinds: tuple[bytes | None, ...] = (
        None,
        b"",
        b"\x00",
        b"\xff\xfe\x00\xd8",
        b"{",
        b"null",
        b"NaN",
        b'"text"',
        b"[1, 2, 3]",
        deep,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b'{"ts": 1' + b"0" * 5_000 + b"}",
        b'{"ts": NaN, "uid": Infinity}',
        b'{"ts": "\\ud800", "id.orig_h": "\\udfff"}',
        b'{"ts": 1.0, "ts": 2.0}',
        b'{"ts": 1.0, "id.orig_h": {"not": "an address"}, "id.orig_p": [1]}',
        b'{"ts": true, "id.orig_p": -99999999999999999999}',
        b"<30>1 - - - - - -",
        b"<999999999999>1 2026-13-45T99:99:99Z h a - - - x",
        b"CEF:0|" + b"\\|" * 1_000,
        b"a" * 1_000_000,
        b"\n\r\n\t " * 100,
    )
    return [(source, kind) for source in (*SOURCES, *POISONED) for kind in kinds]


def extreme_times() -> list[tuple[str, bytes]]:
    """Events from before there were computers to after the last one."""
    moments = (-62135596800.0, -1e12, -1.0, 0.0, 1e-9, 4102444800.0, 253402300799.0, 1e15, 1e308)
    now = datetime.now(UTC)
    days = [(now + timedelta(days=d)).timestamp() for d in (-3650, -30, -1, 1, 30, 3650)]
    return [("zeek:dns", dns("10.9.0.12", n, ts)) for n, ts in enumerate((*moments, *days))]


@dataclass(frozen=True)
class Shuffled:
    """Leases of the last minutes that changed hands: their lines, and who held what when."""

    now: datetime

    def lines(self, chance: random.Random) -> list[tuple[str, bytes]]:
        """Each line twice, in any order."""
        lines = []
        for address, at, mac in self._leases():
            stamp = at.isoformat(timespec="microseconds")
            text = f"<30>1 {stamp} gate dhcpd 7 - - DHCPACK on {address} to {mac} (h) via br0"
            lines += [("isc_dhcpd", text.encode())] * 2
        chance.shuffle(lines)
        return lines

    def truth(self) -> list[tuple[str, datetime, str]]:
        """`(address, instant, holder)`, a minute after each change of hands."""
        return [(ip, at + timedelta(seconds=50), mac) for ip, at, mac in self._leases()]

    def _leases(self) -> Iterator[tuple[str, datetime, str]]:
        for number in range(1, 21):
            for minutes in (8, 5, 1):
                at = self.now - timedelta(minutes=minutes)
                yield f"10.9.2.{number}", at, f"02:00:00:00:{minutes:02x}:{number:02x}"


def dns(address: str, number: int, ts: float | None = None) -> bytes:
    """A line of Zeek's dns.log."""
    moment = datetime.now(UTC).timestamp() if ts is None else ts
    record = {
        "ts": moment,
        "uid": f"X{number}-{moment}",
        "id.orig_h": address,
        "query": "a.example",
    }
    return json.dumps(record).encode()
