"""Makes a day and writes it: a file a source, the truth, and what to ask."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from headgate.lab.chores import administration, servers
from headgate.lab.day import HOUR, Action, Day, Holding, lab_instant
from headgate.lab.dhcp_logs import write_dhcp
from headgate.lab.leases import Network, Play
from headgate.lab.people import stays, work
from headgate.lab.site import ADMIN, BACKUP, CLIENTS, HOSTS, OFFICE, SERVERS, WIFI, ZONES
from infra.errors import Usage

FIRST_DATE = date(2026, 3, 3)
SEED = 1
POOLS = {
    OFFICE: ([f"10.41.0.{n}" for n in range(100, 108)], 3_600),
    WIFI: ([f"10.42.0.{n}" for n in range(100, 104)], 1_200),
}
"""Addresses and seconds of a lease: few of both, so that addresses change hands."""
_EDGE = 2.0
"""So close to a lease's end, in seconds, nothing is asked: some servers log whole seconds."""


def make_day(
    seed: int = SEED, when: date = FIRST_DATE, *, every_chore: bool = False, lost: float = 0.0
) -> Day:
    """The day of a seed: the same lines and the same truth each time.

    `every_chore`: whatever an administrator does in months falls on this one day. `lost`: the share
    of the DHCP servers' lines that never arrives, as with syslog over UDP.
    """
    day = Day(seed, when, every_chore, lost)
    networks = [Network(name, pool, lease) for name, (pool, lease) in POOLS.items()]
    Play(networks, day.dice).run(stays(day), day.at(24))
    for network in networks:
        write_dhcp(day, network)
        day.holdings += network.holdings
    uses = sorted((u for n in networks for u in n.uses), key=lambda use: (use.start, use.device))
    for use in uses:
        work(day, use)
    servers(day)
    administration(day, uses)
    for lines in day.lines.values():
        lines.sort(key=lambda line: line[0])
    day.actions.sort(key=lambda action: (action.time, action.host))
    day.holdings.sort(key=lambda holding: (holding.ip, holding.start))
    return day


def shortened(day: Day, hours: float) -> Day:
    """The first hours of a day."""
    end = day.start + hours * HOUR
    for source, lines in day.lines.items():
        day.lines[source] = [line for line in lines if line[0] < end]
    day.actions = [action for action in day.actions if action.time < end]
    day.holdings = [holding for holding in day.holdings if holding.start < end]
    return day


def lookups(day: Day) -> list[dict[str, Any]]:
    """What to ask and what is right: each action's address at its time, and as many instants as
    there are at which nobody held an address that somebody held at another time.

    Keys id, time (ISO 8601, UTC), ip; mac and device, null where nobody held it.
    """
    asked: list[tuple[float, str, str | None, str | None]]
    asked = [(a.time, a.ip, a.mac, a.host) for a in day.actions if a.ip and a.mac]
    asked += [(time, ip, None, None) for time, ip in _unheld(day)]
    return [
        {"id": number, "time": _iso(time), "ip": ip, "mac": mac, "device": device}
        for number, (time, ip, mac, device) in enumerate(sorted(asked, key=lambda a: a[:2]), 1)
    ]


def _unheld(day: Day) -> Iterable[tuple[float, str]]:
    """An instant in the middle of each gap between two leases of an address."""
    for earlier, later in pairwise(day.holdings):
        if earlier.ip == later.ip and later.start - earlier.end > 2 * _EDGE:
            yield (earlier.end + later.start) / 2, earlier.ip


def write_day(day: Day, folder: Path) -> dict[str, int]:
    """Write a day into a folder that is new or empty; lines written, by file.

    Beside a file a source: manifest.json, inventory.csv, truth_leases.jsonl, truth_actions.jsonl,
    lookups.jsonl (the questions) and truth_lookups.jsonl (with the answers). Raises `Usage` where
    the folder holds something.
    """
    if folder.is_file() or (folder.exists() and any(folder.iterdir())):
        raise Usage(f"{folder} is not empty; name a folder that is new")
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{source.replace(':', '_')}.log": source for source in sorted(day.lines)}
    written = {}
    for file, source in files.items():
        text = "".join(line + "\n" for _, line in day.lines[source])
        (folder / file).write_text(text, "utf-8")
        written[file] = len(day.lines[source])
    truth = lookups(day)
    for name, rows in (
        ("truth_leases", [_lease(holding) for holding in day.holdings]),
        ("truth_actions", [_action(action) for action in day.actions]),
        ("truth_lookups", truth),
        ("lookups", [{key: row[key] for key in ("id", "time", "ip")} for row in truth]),
    ):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
        written[f"{name}.jsonl"] = len(rows)
    _write_inventory(folder / "inventory.csv")
    (folder / "manifest.json").write_text(json.dumps(_manifest(day, files), indent=1) + "\n")
    return written


def _write_inventory(file: Path) -> None:
    """What a site would know of its machines: `headgate assets import` reads it."""
    with file.open("w", encoding="utf-8", newline="") as opened:
        table = csv.writer(opened, lineterminator="\n")
        table.writerow(("asset_id", "name", "kind", "owner", "tags", "macs", "hostnames", "ips"))
        for client in CLIENTS:
            tags = "admin" if client is ADMIN else ""
            names = (client.name, client.name, client.system, client.user, tags)
            table.writerow((*names, client.mac, client.name, ""))
        for server in SERVERS:
            tags = "backup;scanner" if server is BACKUP else ""
            named = (server.name, server.name, "server", ADMIN.user, tags, "", server.name)
            table.writerow((*named, server.ip))


def _manifest(day: Day, files: Mapping[str, str]) -> dict[str, Any]:
    return {
        "seed": day.seed,
        "date": day.date.isoformat(),
        "every_chore": day.every_chore,
        "lost": day.lost,
        "sources": files,
        "zones": {source: ZONES.get(source, "UTC") for source in sorted(day.lines)},
        "lease_seconds": {"isc_dhcpd": POOLS[OFFICE][1], "kea_dhcp4": POOLS[WIFI][1]},
        "hosts": list(HOSTS),
        "clients": [asdict(client) for client in CLIENTS],
        "servers": [asdict(server) for server in SERVERS],
    }


def _lease(holding: Holding) -> dict[str, Any]:
    return asdict(holding) | {"start": _iso(holding.start), "end": _iso(holding.end)}


def _action(action: Action) -> dict[str, Any]:
    return asdict(action) | {"time": _iso(action.time)}


def _iso(seconds: float) -> str:
    return lab_instant(seconds).isoformat(timespec="milliseconds")
