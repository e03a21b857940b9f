"""From a change of the rule pack to the first alert by the new rule, with all jobs running.

The change is the command `headgate rules enable`, as a person gives it: its start and the
compilation of all rules count. Events that the rule matches come all the time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from bench.lines import Sent, lookup, traversal
from bench.measure import Report, cut
from bench.whole import SLOTS, Whole, whole
from infra.config.settings import Settings
from infra.spark.session import project_root

BAR_SECONDS = 15.0
RULE, TITLE = "http_path_traversal", "Path traversal in an HTTP request"
SOURCES = ("zeek:http", "zeek:dns")
UNBOUNDED = {"HEADGATE_ALERTS__HOURLY_BUDGET": "1000000"}
PER_SECOND = 200
WARM_SECONDS = 30
QUIET_SECONDS = 10
"""After the rule was switched off, what was matched before is let through."""
START_SECONDS = 300.0
LONGEST = 120.0


def run(quick: bool = False) -> Report:
    """Switch a rule off and on again and again, under 200 events a second."""
    report = Report("promote", "make bench ONLY=promote")
    times = 2 if quick else 10
    made = _Lines()
    with whole(SOURCES, _without) as running:
        running.wait("jobs that keep up", START_SECONDS, running.keeps_up)
        running.pace(WARM_SECONDS, made.slot)
        if running.first_of(TITLE):
            raise AssertionError("the rule told of something while it was off")
        waits, commands = [], []
        for _ in range(times):
            took, wait = _once(running, made)
            commands.append(took)
            waits.append(wait)
            _switch(running.settings, "disable")
            running.pace(QUIET_SECONDS, made.slot)
    worst = max(waits)
    report.add("pack change to first alert", waits, "s")
    report.add("pack change to first alert, p95", [cut(waits, 95)], "s")
    report.add(
        "pack change to first alert, worst", [worst], "s",
        bar=f"<= {BAR_SECONDS:.0f} s", met=worst <= BAR_SECONDS,
    )  # fmt: skip
    report.add("of that the command itself", commands, "s")
    report.add("longest the sender ran behind", [running.behind], "s")
    report.notes += [
        f"{times} times `headgate rules enable {RULE}` while {PER_SECOND} events a second come, "
        "one a second of which the rule matches, each by an address of its own",
        "delay: from the start of the command to the append time of the first alert on the topic "
        "whose event happened after it; all on this machine, one driver with all jobs",
    ]
    return report


def _without(settings: Settings) -> dict[str, str]:
    """The rule is off from the beginning."""
    _switch(settings, "disable")
    return UNBOUNDED


def _once(running: Whole, made: _Lines) -> tuple[float, float]:
    """Seconds that the command took, and until the first alert of the rule."""
    before = len(running.first_of(TITLE))
    began = time.time()
    command = subprocess.Popen(_command(running.settings, "enable"), cwd=project_root())
    took: float | None = None
    end = time.monotonic() + LONGEST
    while len(running.first_of(TITLE)) <= before:
        running.pace(1, made.slot)
        if took is None and command.poll() is not None:
            took = time.time() - began
        if time.monotonic() > end:
            said = running.driver.last_words()
            raise AssertionError(f"no alert of {RULE} within {LONGEST:.0f} s; the driver: {said}")
    if command.wait(60) != 0:
        raise AssertionError(f"headgate rules enable ended with {command.returncode}")
    first = running.first_of(TITLE)[before]
    return took or time.time() - began, first.appended_at - began


def _switch(settings: Settings, verb: str) -> None:
    subprocess.run(_command(settings, verb), check=True, cwd=project_root())


def _command(settings: Settings, verb: str) -> list[str]:
    home = str(settings.home.absolute())
    return [sys.executable, "-m", "headgate.cli", "--home", home, "rules", verb, RULE]


class _Lines:
    """Lookups, and once a second a request that the rule matches, by an address of its own."""

    def __init__(self) -> None:
        self._number = 0
        self._attacks = 0

    def slot(self, number: int) -> Iterator[Sent]:
        """The lines of a twentieth of a second."""
        now = time.time()
        if number % SLOTS == 0:
            self._attacks += 1
            yield traversal(f"198.18.{self._attacks // 250}.{self._attacks % 250 + 1}",
                            self._number, now)  # fmt: skip
        for _ in range(PER_SECOND // SLOTS):
            self._number += 1
            yield lookup("10.9.10.7", self._number, now)
