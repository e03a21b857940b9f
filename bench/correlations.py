"""What a correlation over ten thousand groups adds to the delay of an alert, and what it keeps.

Each address gets a finding every ten seconds, far too seldom for the correlation. Now and then
one of them makes a burst that completes it. The last event of a burst matches a second rule, which
alerts by itself: the difference between the two alerts is what correlating adds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from bench.lines import Sent, traversal
from bench.measure import Report, cut
from bench.whole import SLOTS, Whole, whole
from infra.config.settings import Settings
from infra.runtime import job_status

BURST = 20
"""Findings of one group within the time span that complete the correlation."""
START_SECONDS = 300.0
WARM_SECONDS = 90
GROWTH = 1.25
LAST_SECONDS = 120.0
SINGLE, MANY = "Bench: last request of a burst", "Bench: many requests by one address"
SOURCES = ("zeek:http",)
RULES = f"""\
title: 'Bench: request'
name: bench_request
id: 7a1c0f0e-0001-4000-8000-000000000001
level: informational
logsource: {{category: proxy}}
detection:
  climbs: {{c-uri|contains: ../../}}
  condition: climbs
---
title: '{SINGLE}'
id: 7a1c0f0e-0001-4000-8000-000000000002
level: high
logsource: {{category: proxy}}
detection:
  last: {{cs-method: PUT, c-uri|contains: ../../}}
  condition: last
---
title: '{MANY}'
id: 7a1c0f0e-0001-4000-8000-000000000003
level: high
correlation:
  type: event_count
  rules: [bench_request]
  group-by: [src_endpoint.ip]
  timespan: 1m
  condition: {{gte: {BURST}}}
"""


@dataclass(frozen=True)
class Load:
    """Groups, findings a second, and seconds that are measured."""

    groups: int
    per_second: int
    seconds: int


@dataclass
class Seen:
    """What was looked at while it ran: seconds since it began, and bytes of state."""

    state: list[tuple[float, int]] = field(default_factory=list)


def run(quick: bool = False) -> Report:
    """Ten thousand groups, a thousand findings a second, twice as long as a finding is kept."""
    load = Load(1_000, 100, 40) if quick else Load(10_000, 1_000, 1_320)
    report = Report("correlations", "make bench ONLY=correlations")
    made, seen = _Lines(load), Seen()
    with whole(SOURCES, _rules) as running:
        running.wait("jobs that keep up", START_SECONDS, running.keeps_up)
        running.pace(WARM_SECONDS, lambda number: made.slot(number, bursts=False))
        began = time.monotonic()
        while time.monotonic() - began < load.seconds:
            running.pace(5, lambda number: made.slot(number, bursts=True))
            told = job_status.read_status(running.settings).get("alert")
            if told is not None:
                seen.state.append((time.monotonic() - began, told.state_bytes))
        bursts = len(made.bursts)
        running.wait(f"{bursts} alerts of each rule", LAST_SECONDS, lambda: _came(running, bursts))
        _tell(report, running, made, seen)
    return report


def _rules(settings: Settings) -> dict[str, str]:
    """Put the rules into a folder; the environment in which they alone run."""
    folder = settings.home.absolute() / "rules"
    folder.mkdir(parents=True)
    (folder / "bench.yml").write_text(RULES, "utf-8")
    return {
        "HEADGATE_ALERTS__RULES": json.dumps([str(folder)]),
        "HEADGATE_ALERTS__BUNDLED": "false",
        "HEADGATE_ALERTS__HOURLY_BUDGET": "1000000",
    }


def _came(running: Whole, bursts: int) -> bool:
    return all(len(running.first_of(rule)) >= bursts for rule in (SINGLE, MANY))


def _tell(report: Report, running: Whole, made: _Lines, seen: Seen) -> None:
    single, many = (_appended(running, rule) for rule in (SINGLE, MANY))
    added = [many[ip] - single[ip] for ip in made.bursts]
    delays = [many[ip] - at for ip, at in made.bursts.items()]
    batch = _batch_seconds(running)
    p50 = median(added)
    report.add("alert of the correlation after the alert of its last event, p50", [p50], "s",
               bar=f"<= one batch of job alert ({batch:.1f} s)", met=p50 <= batch)  # fmt: skip
    report.add("the same, p95", [cut(added, 95)], "s")
    report.add("a batch of job alert, start to start, median", [batch], "s")
    report.add("last event of a burst to the correlation's alert, p50", [median(delays)], "s")
    report.add("the same, p95", [cut(delays, 95)], "s")
    half = [size for at, size in seen.state if at <= seen.state[-1][0] / 2]
    first, last = half[-1] / 2**20, seen.state[-1][1] / 2**20
    report.add("state of job alert at half time", [first], "MB")
    report.add(
        "state of job alert at the end", [last], "MB",
        bar=f"<= {GROWTH} of that at half time", met=last <= GROWTH * first,
    )  # fmt: skip
    report.add("longest the sender ran behind", [running.behind], "s")
    load = made.load
    report.notes += [
        f"{load.groups:,} addresses with {load.per_second:,} findings a second for {load.seconds} "
        f"s after {WARM_SECONDS} s of the same; {len(made.bursts)} bursts of {BURST} findings "
        "within a minute complete the correlation",
        "a burst's last event matches a second rule as well; both alerts are read from the topic",
    ]


def _appended(running: Whole, rule: str) -> dict[str, float]:
    """When the first alert of the rule about each address was appended."""
    found: dict[str, float] = {}
    for heard in running.first_of(rule):
        found.setdefault(str(heard.body["attribution"]["ip"]), heard.appended_at)
    return found


def _batch_seconds(running: Whole) -> float:
    """From the start of a batch of job alert to the start of the next, median of the newest."""
    rows = running.ask(
        "SELECT started_at FROM ops.ledger WHERE job = 'alert' ORDER BY batch_id DESC LIMIT 60",
        ("ops.ledger",),
    )
    starts = sorted(at.timestamp() for (at,) in rows)
    return float(median(after - before for before, after in pairwise(starts)))


class _Lines:
    """Requests by all addresses in turn, and bursts by addresses that had none yet.

    `bursts`: when each burst's last event was made, by its address.
    """

    def __init__(self, load: Load) -> None:
        self.load = load
        self.bursts: dict[str, float] = {}
        self._number = 0

    def slot(self, number: int, *, bursts: bool) -> Iterator[Sent]:
        """A twentieth of a second; with `bursts` one a second."""
        for _ in range(self.load.per_second // SLOTS):
            self._number += 1
            yield traversal(_address(self._number % self.load.groups), self._number, time.time())
        if bursts and number % SLOTS == 0:
            yield from self._burst()

    def _burst(self) -> Iterator[Sent]:
        """The findings that complete the correlation, by a new address, the last by PUT."""
        host = len(self.bursts)
        address = f"198.19.{host // 250}.{host % 250 + 1}"
        for n in range(BURST):
            self._number += 1
            now = time.time()
            method = "PUT" if n == BURST - 1 else "GET"
            yield traversal(address, self._number, now, method)
        self.bursts[address] = now


def _address(number: int) -> str:
    """An address of those kept for benchmarks (RFC 2544), outside every DHCP network."""
    return f"198.18.{number // 250}.{number % 250 + 1}"
