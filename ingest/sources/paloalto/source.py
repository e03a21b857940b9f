"""PAN-OS, the system of Palo Alto Networks' firewalls: its logs as comma-separated values.

https://docs.paloaltonetworks.com/pan-os/11-0/pan-os-admin/monitoring/use-syslog-for-monitoring/syslog-field-descriptions
Columns stand in `paloalto_fields`. Times are the firewall's local ones; since PAN-OS 10
a column with an offset tells which zone that is. Logs that PAN-OS was told to write as
CEF or LEEF are read by `cef`.
"""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import Stamp, like_iso, stamp_iso
from ingest.sources.generic.cef import MARK as CEF_MARK
from ingest.sources.generic.cef import Cef, read_cef
from ingest.sources.paloalto.cloud_json import columns_of
from ingest.sources.paloalto.fields import layout
from ingest.sources.paloalto.logs import Log
from ingest.sources.paloalto.system import READERS, plain
from ingest.sources.shared.device_header import Header, each_line, read_header
from ingest.sources.shared.firewall import Fields

_START = re.compile(
    r"(?:(?<=^)|(?<=[\s:>]))\d*,(?P<received>\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d[^,]{0,20}),"
    r"(?P<serial>[^,]{0,64}),(?:(?P<old>\d+,0x[0-9a-f]+),)?(?P<type>[A-Z][A-Z0-9_-]{1,31}),",
    re.ASCII,
)
_LONGEST_HEADER = 1024
_JSON = re.compile(r'\{\s*"')
# Not the csv module: it refuses cells of more than 128 kB.
CELL = re.compile(r'(?:"(?P<quoted>(?:[^"]|"")*+)"(?P<tail>[^,]*)|(?P<plain>[^,]*))(?:,|$(?!\n))')
_OFFSET = re.compile(
    r"(?P<local>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<fraction>\.\d{1,9})?"
    r"(?P<offset>Z|[+-]\d\d:?\d\d)",
    re.ASCII,
)
_TIME = re.compile(r"\d{4}(?P<dash>[/-])\d\d[/-]\d\d(?P<between>[ T])\d\d:\d\d:\d\d", re.ASCII)
_STALE = 2000
"""A year before which a high-resolution time is a placeholder for none."""


# -- lines -------------------------------------------------------------------------------------


def _fields(text: str, start: re.Match[str]) -> Fields:
    row = [
        cell["quoted"].replace('""', '"') + cell["tail"]
        if cell["quoted"] is not None
        else cell["plain"]
        for cell in CELL.finditer(text, start.start())
    ]
    if start["old"]:
        # PAN-OS 9.1 first wrote GLOBALPROTECT with two columns before its type.
        row = [*row[:3], *row[5:], *row[3:5]]
    names = layout(start["type"])
    fields = Fields()
    for index, value in enumerate(row):
        # A newer release appends columns; what has no name here is kept under its number.
        name = names[index] if index < len(names) else f"column_{index + 1}"
        if name == "_":
            name = f"column_{index + 1}" if value.strip() not in ("", "0", "1") else "_"
        if name != "_" and value.strip():
            fields[name] = value
    return fields


def _stamp(fields: Fields, header: Header, context: Context) -> Stamp:
    """When the log was made: exact where a column tells the offset of the firewall's clock."""
    received_at = context.record.received_at
    host = fields.get("device_name") or header.host
    zone = context.zone(host if type(host) is str else None)
    spelled = fields.get("time_generated") or fields.get("receive_time")
    text = spelled.replace("/", "-") if type(spelled) is str else None
    precise = _OFFSET.fullmatch(str(fields.get("high_res_timestamp", "")))
    if precise is None or int(precise["local"][:4]) < _STALE or text is None:
        return stamp_iso(text, zone, received_at)
    if text.replace(" ", "T") == precise["local"]:
        return stamp_iso(precise[0], zone, received_at)
    return stamp_iso(text.replace(" ", "T") + precise["offset"], zone, received_at)


class PaloAlto(Source):
    """PAN-OS's logs."""

    name = "paloalto"

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda text: [self.read_text(text, context)])

    def read_text(self, text: str, context: Context) -> Event:
        """The event of one line."""
        body = text[text.find("{") :] if "{" in text[:_LONGEST_HEADER] else ""
        if body and body.rstrip()[-1:] == "}" and _JSON.search(body[:_LONGEST_HEADER]):
            kind, columns, stamp = columns_of(decode_object(body.encode()), context)
            header = read_header(text[: len(text) - len(body)], context)
            return READERS.get(kind, plain)(Log(kind, columns, stamp, header))
        start = _START.search(text, 0, _LONGEST_HEADER)
        if start is None:
            if CEF_MARK.search(text, 0, _LONGEST_HEADER):
                return read_cef(text, context)
            raise Unreadable(f"no receive time, serial and type between commas in '{text[:60]}'")
        header = read_header(text[: start.start()], context)
        fields = _fields(text, start)
        stamp = _stamp(fields, header, context)
        log = Log(start["type"], fields, stamp, header)
        fields.pop("type", None)
        return READERS.get(log.kind, plain)(log)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        start = _START.search(text, 0, _LONGEST_HEADER)
        if start is None and CEF_MARK.search(text, 0, _LONGEST_HEADER):
            return Cef().restamp(raw, when, zone)
        if start is None:
            raise Unreadable("no receive time, serial and type between commas")
        body, local = _precise(text[start.start() :], when, zone)
        pieces = body.split(",", 7)
        # `receive_time` and `time_generated`.
        for position in (1, 6):
            if position < len(pieces):
                pieces[position] = _TIME.sub(
                    lambda m: (
                        f"{local:%Y}{m['dash']}{local:%m}{m['dash']}{local:%d}{m['between']}"
                        f"{local:%H:%M:%S}"
                    ),
                    pieces[position],
                )
        return (text[: start.start()] + ",".join(pieces)).encode() + raw[len(text.encode()) :]


def _precise(body: str, when: datetime, zone: ZoneInfo) -> tuple[str, datetime]:
    """A log with its column of an exact time replaced, and `when` on the firewall's clock."""
    for match in _OFFSET.finditer(body):
        if int(match["local"][:4]) >= _STALE and body[match.end() : match.end() + 1] in ("", ","):
            named = datetime.fromisoformat(match[0]).tzinfo
            new = like_iso(match[0], when, zone) or match[0]
            return body[: match.start()] + new + body[match.end() :], when.astimezone(named)
    return body, when.astimezone(zone)


SOURCES = (PaloAlto(),)
