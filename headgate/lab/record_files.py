"""A written day read back as silver.event would have it."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from infra.errors import Usage
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record

DHCP = ("isc_dhcpd", "kea_dhcp4")
SCOPE = "default"


class Manifest(msgspec.Struct):
    """What manifest.json says of a day: its sources by file, and how to read them."""

    date: str
    sources: dict[str, str]
    zones: dict[str, str]
    lease_seconds: dict[str, int]
    hosts: list[str]
    clients: list[dict[str, str]]

    def settings(self) -> ParseSettings:
        """What a site would write into its settings."""
        return ParseSettings(zones=self.zones, leases=self.lease_seconds, scopes=((SCOPE, ()),))


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a day. Raises `Usage` where there is none that can be read."""
    file = folder / "manifest.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise Usage(f"{file} is missing; 'headgate lab write {folder}' makes a day") from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise Usage(f"{file} cannot be read ({error}); write the day again") from error


def day_events(folder: Path, only: Collection[str] = ()) -> list[dict[str, Any]]:
    """The rows of all lines of a day, or of the sources in `only`, by arrival.

    Lines arrive in the order of their files, at the end of the day: nothing is known too late.
    Raises `Usage` for a day that cannot be read or whose lines our parsers do not know.
    """
    manifest = read_manifest(folder)
    settings = manifest.settings()
    end = datetime.fromisoformat(manifest.date).replace(tzinfo=UTC) + timedelta(days=1, hours=1)
    rows: list[dict[str, Any]] = []
    for file, source in manifest.sources.items():
        if only and source not in only:
            continue
        raws = (folder / file).read_bytes().splitlines()
        records = [
            Record(f"{source}-{number:07}", source, "live", end, raw)
            for number, raw in enumerate(raws)
        ]
        rows += event_rows(records, settings)
    for row in rows:
        if reason := row.get("dead_letter_reason"):
            raise Usage(f"{row['source']}, {row['record_ids'][0]}: {reason}; write the day again")
        # As if each line had come at once, which rules that wait for it need.
        row["received_at"] = row["time"] + timedelta(seconds=1)
    return rows


def read_inventory(folder: Path) -> list[dict[str, Any]]:
    """The site's inventory, inventory.csv, as rows of silver.asset_version, valid since ever."""
    file = folder / "inventory.csv"
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            assets = list(csv.DictReader(opened))
    except OSError as error:
        raise Usage(f"{file} cannot be read: {error}; write the day again") from error
    since = datetime(2000, 1, 1, tzinfo=UTC)
    origin = {"inventory": "lab", "valid_from": since, "loaded_at": since, "gone": False}
    return [
        origin
        | {"line": number, "file": file.name}
        | {
            # Several values stand in one cell, parted as our import of inventories reads them.
            key: [part for part in value.split(";") if part] if key in _LISTS else value or None
            for key, value in asset.items()
        }
        for number, asset in enumerate(assets, 2)
    ]


_LISTS = ("tags", "macs", "hostnames", "ips")


def read_lines(file: Path) -> list[dict[str, Any]]:
    """JSON lines. Raises `Usage` with the line that is none."""
    rows = []
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise Usage(f"{file} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise Usage(f"{file}, line {number}: no JSON ({error})") from error
        if not isinstance(row, dict):
            raise Usage(f"{file}, line {number}: a JSON object was expected")
        rows.append(row)
    return rows
