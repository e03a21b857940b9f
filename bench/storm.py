"""A hundred thousand findings of one rule in a minute, by as many addresses.

The tables must get all, the topic no more than the rule's budget, and the jobs must be back
where they were within two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.lines import Sent, lookup, traversal
from bench.measure import Report
from bench.whole import JOBS, NORMAL_SECONDS, SLOTS, Whole, whole

TITLE = "Path traversal in an HTTP request"
SOURCES = ("zeek:http", "zeek:dns")
USUAL_PER_SECOND = 100
BUDGET = 100
BAR_SECONDS = 120.0
STILL_SECONDS = 5.0
"""So long every job must keep up before it counts as back."""
LONGEST = 900.0


def run(quick: bool = False) -> Report:
    """A minute of the storm, then the wait until all of it is through."""
    total, seconds, warm = (4_000, 10, 20) if quick else (100_000, 60, 45)
    report = Report("storm", "make bench ONLY=storm")
    made = _Lines()
    with whole(SOURCES) as running:
        running.pace(warm, made.usual)
        running.wait("jobs that keep up before the storm", LONGEST, running.keeps_up)
        per_slot = -(-total // (seconds * SLOTS))
        running.pace(seconds, lambda number: made.storm(number, per_slot))
        sent = made.attacks
        back = _back(running, made)
        through = back + running.wait("all findings", LONGEST, lambda: _findings(running) >= sent)
        running.wait("all alerts", LONGEST, lambda: _alerts(running) >= sent)
        time.sleep(5)
        _tell(report, running, sent, seconds, back, through)
    return report


def _back(running: Whole, made: _Lines) -> float:
    """Seconds from the end of the storm until every job kept up for a while; the usual load goes
    on."""
    began, still = time.monotonic(), time.monotonic()
    while time.monotonic() - still < STILL_SECONDS:
        running.pace(0.5, made.usual)
        if not running.keeps_up():
            still = time.monotonic()
        if time.monotonic() - began > LONGEST:
            raise AssertionError(f"the jobs do not keep up {LONGEST:.0f} s after the storm")
    return max(0.0, still - began)


def _findings(running: Whole) -> int:
    return _count(running, "gold.finding", f"rule_title = '{TITLE}'", "finding_id")


def _alerts(running: Whole) -> int:
    held = "rule_name = '" + TITLE + "' AND dedup_key NOT LIKE '%|budget|%'"
    return _count(running, "gold.alert", held, "alert_id")


def _count(running: Whole, table: str, which: str, what: str) -> int:
    rows = running.ask(f"SELECT count(DISTINCT {what}) FROM {table} WHERE {which}", (table,))
    return int(rows[0][0]) if rows else 0


def _tell(
    report: Report, running: Whole, sent: int, seconds: int, back: float, through: float
) -> None:
    found, alerts = _findings(running), _alerts(running)
    rows = running.ask("SELECT count(*) FROM gold.finding WHERE kind = 'event' "
                       f"AND rule_title = '{TITLE}'", ("gold.finding",))  # fmt: skip
    told = {heard.key for heard in running.first_of(TITLE)}
    singles = [h for h in running.first_of(TITLE) if "|budget|" not in h.body["dedup_key"]]
    report.add(
        "alerts of the rule on the topic", [len(singles)], "alerts",
        bar=f"<= {BUDGET}", met=len(singles) <= BUDGET,
    )  # fmt: skip
    report.add("beside them, summaries of what was held back", [len(told) - len(singles)], "alerts")
    report.add(
        "findings in gold.finding", [found], f"of {sent}", bar="all, each once",
        met=found == sent and int(rows[0][0]) == sent,
    )  # fmt: skip
    report.add(
        "alerts in gold.alert", [alerts], f"of {sent}", bar="all", met=alerts == sent
    )  # fmt: skip
    report.add(
        f"end of the storm to a lag below {NORMAL_SECONDS:.0f} s", [back], "s",
        bar=f"<= {BAR_SECONDS:.0f} s", met=back <= BAR_SECONDS,
    )  # fmt: skip
    report.add("end of the storm to the last finding in its table", [through], "s")
    report.add("longest the sender ran behind", [running.behind], "s")
    report.notes += [
        f"{sent:,} requests in {seconds} s that one rule matches, each by an address of its own "
        f"outside DHCP, among {USUAL_PER_SECOND} lookups a second that go on afterwards; one "
        "driver with all jobs and default settings, one broker, and the sender, on this machine",
        "lag: between now and the arrival time up to which jobs "
        f"{' and '.join(JOBS)} take their input as complete, as `headgate status` tells it",
    ]


class _Lines:
    """Lookups, and requests that the rule matches, each by an address that nobody had before."""

    def __init__(self) -> None:
        self.attacks = 0
        self._number = 0

    def usual(self, number: int) -> Iterator[Sent]:
        """A twentieth of a second of what always comes."""
        now = time.time()
        for _ in range(USUAL_PER_SECOND // SLOTS):
            self._number += 1
            yield lookup("10.9.10.7", self._number, now)

    def storm(self, number: int, attacks: int) -> Iterator[Sent]:
        """A twentieth of a second of the storm."""
        yield from self.usual(number)
        now = time.time()
        for _ in range(attacks):
            host, self.attacks = self.attacks, self.attacks + 1
            # 198.18.0.0/15 is kept for benchmarks (RFC 2544).
            address = f"198.{18 + host // 65_536}.{host // 256 % 256}.{host % 256}"
            yield traversal(address, self._number + host, now)
