"""Zeek's logs, as JSON and as Zeek's own text (https://docs.zeek.org/en/master/logs/).

Source `zeek:<log>` reads the log of that name, `zeek` the one that each record names
(`_path`, `@stream`, `#path`, a wrapping key) or looks like. A log that is not known by name
is read by what all logs have in common.

Three spellings of a connection's ends are read: `id.orig_h` (Zeek itself),
`id_orig_h` (Corelight and many shippers) and `"id": {"orig_h": ...}` (shippers
that unfold dots). The time is a number of seconds or ISO text.

conn, dns and http, which are most of what Zeek writes, are read here, and strictly: a
record without two addresses, or with a field of another type, is refused. The other logs
take what they can (`ingest.sources.zeek.row`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.json_time import restamp_json
from ingest.parsing.source import Context, Event, ParseSettings, Read, Record, Source, Unreadable
from ingest.parsing.strict_json import decode_object, take_string
from ingest.sources.zeek.access import kerberos, ntlm, radius, rdp, ssh
from ingest.sources.zeek.core import Entry, conn, dns, entry_of, http
from ingest.sources.zeek.files import files, ftp, pe, smb_files, smb_mapping, x509
from ingest.sources.zeek.findings import (
    analyzer,
    intel,
    notice,
    signatures,
    software,
    suricata,
    weird,
)
from ingest.sources.zeek.names import looks_like, read_as
from ingest.sources.zeek.records import ZeekRecord, records_of, unwrapped
from ingest.sources.zeek.row import Row, dotted, header_event
from ingest.sources.zeek.traffic import dce_rpc, dhcp, ntp, other, smtp, ssl, syslog, tunnel
from ingest.sources.zeek.tsv import restamp_line

if TYPE_CHECKING:
    import pyarrow as pa

# -- the sources -------------------------------------------------------------------------------

_Reader = Callable[[dict[str, Any], Context, str | None], Event]


def _strict(read: Callable[[Entry], Event], name: str) -> _Reader:
    return lambda fields, context, log: read(entry_of(fields, context, log or name))


def _lenient(read: Callable[[Row], Event]) -> _Reader:
    return lambda fields, context, log: read(Row.of(fields, context, log))


def _connected(read: Callable[[Row], Event]) -> _Reader:
    """As `_lenient`, for a log that is about connections; without one it is any record."""

    def event_of(fields: dict[str, Any], context: Context, log: str | None) -> Event:
        row = Row.of(fields, context, log)
        return read(row) if row.src or row.dst else other(row)

    return event_of


_READERS: Mapping[str, _Reader] = MappingProxyType(
    {
        "conn": _strict(conn, "conn"),
        "dns": _strict(dns, "dns"),
        "http": _strict(http, "http"),
        **{
            read.__name__: _connected(read)
            for read in (
                *(ssl, ssh, kerberos, ntlm, radius, smb_files, smb_mapping, dce_rpc, rdp),
                *(ftp, smtp, syslog, tunnel, ntp),
            )
        },
        **{
            read.__name__: _lenient(read)
            for read in (
                *(dhcp, files, x509, pe, weird, notice, analyzer, software, intel, signatures),
            )
        },
        "suricata_corelight": _lenient(suricata),
    }
)
LOG_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Zeek(Source):
    """One of Zeek's logs; with `log` None, of whichever log each record says it is."""

    name: str
    log: str | None
    whole_file: ClassVar[bool] = True

    def is_header(self, line: bytes) -> bool:
        return line[:1] == b"#"

    def member(self, kind: str) -> Source | None:
        if self.log is not None or not LOG_NAME.fullmatch(kind):
            return None
        return Zeek(f"{self.name}:{kind}", kind)

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = record.raw
        # Nearly every record of a live sensor: one object, with no search for anything else.
        if raw[:1] == b"{" and b"\n" not in raw:
            return [self._event(unwrapped(decode_object(raw)), context)]
        events: list[Event] = []
        read = 0
        for each in records_of(raw, context.header):
            try:
                if isinstance(each, Unreadable):
                    raise each
                events.append(self._event(each, context))
                read += 1
            except Unreadable as why:
                events.append({"dead_letter_reason": str(why)})
        if events and read == 0:
            raise Unreadable(events[0]["dead_letter_reason"])
        return events or [header_event(raw, context)]

    def _event(self, record: ZeekRecord, context: Context) -> Event:
        fields, log = record.fields, self.log
        if record.path is not None:
            log = self._agreed("#path", record.path)
        for key in ("_path", "@stream"):
            if key in fields:
                log = self._agreed(key, take_string(fields, key)) or log
        if log is None:
            log = looks_like(dotted(fields))
        return _READERS.get(read_as(log) or "", _OTHER)(fields, context, log)

    def _agreed(self, key: str, named: str | None) -> str | None:
        """The name of the log that a record gives; raises `Unreadable` if it is another's."""
        ours = self.log
        if named is None or ours is None:
            return named or ours
        # A record of another log in this topic would be read by the wrong rules; it is refused.
        if named != ours and read_as(named) != read_as(ours):
            raise Unreadable(f"{key}: a record of the log '{named[:40]}' among those of '{ours}'")
        return named

    def columns(self, records: pa.RecordBatch, settings: ParseSettings) -> Read | None:
        # Imported where Arrow is at hand anyway: the command line starts without it.
        from ingest.sources.zeek import columns

        if self.log is None or self.log not in columns.LOGS:
            return None
        return columns.read(self.log, records, settings)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        if raw.lstrip()[:1] != b"{" and b"\t" in raw:
            return restamp_line(raw, when, zone)
        return restamp_json(raw, "ts", when, zone)


_OTHER = _lenient(other)


SOURCES = (
    Zeek("zeek", None),
    # `dpd` is the old name of the log `analyzer`.
    *(Zeek(f"zeek:{log}", log) for log in (*_READERS, "dpd")),
)
