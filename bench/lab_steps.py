"""What programs did on the published benign day (`headgate lab`), hour by hour, over several sites.

A site is a run of seeds, a seed a workday, so that each chore of its administrator falls as often
as it does in weeks. Windows' background is recorded, chores are written (headgate/lab/chores.py).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from alerts.domain.step import STEP_VERBS
from bench.step_fleet import DeviceHour, step_of
from headgate.lab.day import Day
from headgate.lab.site import CLIENTS, SERVERS, WINDOWS
from headgate.lab.write import make_day
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record

SITES = 8
DAYS, HELD = 10, 3
"""Two workweeks teach; of their last days it is asked how rare strays are."""
JUDGED = range(DAYS, DAYS + 5)
MACHINES = tuple(each.name for each in (*CLIENTS, *SERVERS) if each.system == WINDOWS)
_SOURCE = "windows_nxlog"
_SEEDS = 1_000
"""Between the first seeds of two sites."""
_EVENTS = frozenset({"1", "8", "10", "4688"})
"""Of Sysmon and the Security log: what steps are made of. The rest need not be parsed."""


def lab_devices(sites: int = SITES) -> list[str]:
    """The entities of all Windows machines of so many sites."""
    return [_entity(name, site) for site in range(sites) for name in MACHINES]


def lab_hours(days: Iterable[int], sites: int = SITES) -> Iterator[DeviceHour]:
    """The hours of all machines of so many sites on these workdays."""
    for day in days:
        for site in range(sites):
            yield from _hours(make_day(1 + site * _SEEDS + day), site, day)


def lab_kind(entity: str) -> int:
    """The group of a machine: clients, or servers."""
    return int(any(entity.startswith(f"host|{server.name}@") for server in SERVERS))


def _hours(written: Day, site: int, day: int) -> Iterator[DeviceHour]:
    lines = (line for _, line in written.lines[_SOURCE])
    records = [
        Record(f"{_SOURCE}:0:{number}", _SOURCE, "live", datetime.now(UTC), line.encode(), {})
        for number, line in enumerate(lines)
        if str(json.loads(line)["EventID"]) in _EVENTS
    ]
    steps: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for row in event_rows(records, ParseSettings()):
        if row["activity_id"] in STEP_VERBS:
            steps[_host(row), row["time"].hour][step_of(row)] += 1
    for (host, hour), counted in sorted(steps.items()):
        yield DeviceHour(_entity(host, site), day, hour, counted)


def _host(row: dict[str, Any]) -> str:
    return str(row["host_name"]).partition(".")[0]


def _entity(name: str, site: int) -> str:
    return f"host|{name}@{site}"
