"""What all jobs cost while nothing comes, and how soon an alert comes out of the silence."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial

import psutil

from bench.lines import grant, traversal
from bench.measure import Report
from bench.whole import Whole, whole

SOURCES = ("isc_dhcpd", "zeek:dns", "zeek:conn", "zeek:http")
RULE = "Path traversal in an HTTP request"
DEVICES = 200
PARTS = ("JVM", "driver", "workers", "commands")
REST_SECONDS = 45.0
"""Between two attacks into the silence: longer than the pause between two ticks."""

_Known = dict[tuple[int, float], tuple[str, float]]
"""Of each process, by its id and when it began, the part it is of and its CPU seconds."""


def run(quick: bool = False) -> Report:
    """An hour of silence (quick: two minutes) after a start, then single attacks."""
    report = Report("idle", "make bench ONLY=idle")
    silent, settle, attacks = (120, 120, 1) if quick else (3600, 180, 10)
    with whole(SOURCES) as running:
        now = time.time()
        running.send(grant(*_device(number), now) for number in range(DEVICES))
        running.flush()
        running.wait("all leases", 400, lambda: _leases(running) >= DEVICES)
        # A start is followed by work of its own: what is read first, compiled and looked up.
        time.sleep(settle)
        used = _silence(running, silent)
        cores = {part: round(used[part] / silent, 4) for part in PARTS}
        print(f"cores in {silent} s of silence: {cores}", file=sys.stderr, flush=True)
        delays = {kind: _into_silence(running, kind, attacks) for kind in ("leased", "outside")}
    report.add(
        "CPU of the driver and all below it", [sum(used.values()) / silent], "cores",
        bar="<= 0.10", met=sum(used.values()) / silent <= 0.10,
    )  # fmt: skip
    for part in PARTS:
        report.add(f"of that: {part}", [used[part] / silent], "cores")
    for kind, seconds in delays.items():
        report.add(f"an attack out of the silence, {kind}: to its alert", seconds, "s")
    report.notes += [
        f"all jobs, {DEVICES} leases, no message for {silent} s; CPU time by /proc, processes that "
        "ended included; the broker's is not counted",
        f"then {attacks} attacks of each kind, {REST_SECONDS:.0f} s apart: the event's own time to "
        "the append time of its alert",
    ]
    return report


def _device(number: int) -> tuple[str, str, str]:
    return f"10.9.10.{number + 1}", f"02:00:00:09:00:{number:02x}", f"host-{number}"


def _leases(running: Whole) -> int:
    rows = running.ask(
        "SELECT count(DISTINCT ip) FROM silver.dhcp_segment WHERE mac IS NOT NULL",
        ("silver.dhcp_segment",),
    )
    return int(rows[0][0]) if rows else 0


def _silence(running: Whole, seconds: float) -> Mapping[str, float]:
    """CPU seconds by part, while nothing is sent."""
    before, end = processes(running), time.monotonic() + seconds
    known = dict(before)
    # Looked at as they run: what Spark's workers used nobody inherits when they end.
    while time.monotonic() < end:
        time.sleep(min(1.0, max(0.0, end - time.monotonic())))
        running.alive()
        known |= processes(running)
    used: dict[str, float] = defaultdict(float)
    for process, (part, spent) in known.items():
        used[part] += spent - before.get(process, (part, 0.0))[1]
    return used


def processes(running: Whole) -> _Known:
    """The driver and all below it, with the CPU seconds of each."""
    top = psutil.Process(running.driver.process.pid)
    known: _Known = {}
    for process in (top, *top.children(recursive=True)):
        try:
            times, part = process.cpu_times(), _part(process, top)
            known[process.pid, process.create_time()] = part, times.user + times.system
        except psutil.Error:
            continue
    return known


def _part(process: psutil.Process, top: psutil.Process) -> str:
    """The driver itself, its JVM, what that began, or a command beside the jobs."""
    if process.pid == top.pid:
        return "driver"
    line = [process, *process.parents()]
    below = line[: next(n for n, each in enumerate(line) if each.pid == top.pid)]
    # The driver's own child tells them apart: the JVM is its only one that is Java.
    if not below[-1].name().startswith("java"):
        return "commands"
    return "JVM" if len(below) == 1 else "workers"


def _into_silence(running: Whole, kind: str, attacks: int) -> list[float]:
    """Seconds from each of some single attacks to its alert on the topic."""
    delays = []
    for number in range(attacks):
        ip = _device(number)[0] if kind == "leased" else f"192.0.2.{number + 1}"
        time.sleep(REST_SECONDS)
        sent = time.time()
        running.send([traversal(ip, 900_000 + number, sent)])
        running.flush()
        running.wait(f"the alert about {ip}", 180, partial(_is_heard, running, ip))
        delays.append((_heard(running, ip) or 0.0) - sent)
    return delays


def _is_heard(running: Whole, ip: str) -> bool:
    return _heard(running, ip) is not None


def _heard(running: Whole, ip: str) -> float | None:
    """When the first alert about an address was appended to the topic."""
    for message in running.first_of(RULE):
        if (message.body.get("attribution") or {}).get("ip") == ip:
            return message.appended_at
    return None
