"""Syslog of any program: each line goes to the source that knows its program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo

from ingest import syslog
from ingest.parsers.kea_dhcp4 import Kea
from ingest.source import Context, Event, Record, Source, sources

PRODUCT: Mapping[str, str] = {"name": "syslog", "vendor_name": "Unknown"}


@cache
def _programs() -> dict[str, syslog.SyslogSource | Kea]:
    return {
        program: source
        for source in sources().values()
        if isinstance(source, syslog.SyslogSource | Kea)
        for program in source.programs
    }


@dataclass(frozen=True)
class Syslog(Source):
    """One stream of syslog from many programs; what no source knows becomes a base event."""

    name: str = "syslog"

    def parse(self, record: Record, context: Context) -> list[Event]:
        line = syslog.read(record.raw, context)
        source = _programs().get(line.program or "")
        return [source.read(line, context) if source else syslog.base_event(line, PRODUCT)]

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return syslog.restamp(raw, when, zone)


SOURCES = (Syslog(),)
