"""Cisco's firewalls: ASA, and Firepower (FTD) in the same words and its own.

https://www.cisco.com/c/en/us/td/docs/security/asa/syslog/asa-syslog.html . A line is
`%ASA-6-302013: words`; what may stand before it is read by `device_header`, what the
words mean stands in `cisco_asa_messages`, FTD's own messages in `cisco_ftd`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import kept
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import Stamp
from ingest.sources.cisco.asa_events import READERS, Message, plain
from ingest.sources.cisco.asa_messages import shaped
from ingest.sources.cisco.ftd import ftd_event
from ingest.sources.shared.device_header import Header, each_line, read_header, restamp_header
from ingest.sources.shared.firewall import Fields

_MARK = re.compile(
    r"%(?P<device>ASA|FTD|PIX|FWSM|NGIPS|NGFW)-(?:(?P<facility>[A-Za-z][\w]{0,31})-)?"
    r"(?P<level>[0-7])-(?P<uid>\d{5,6})(?: ?: ?| |$)",
    re.ASCII,
)
ASA = {"name": "ASA", "vendor_name": "Cisco"}
FTD = {"name": "Firepower Threat Defense", "vendor_name": "Cisco"}
PRODUCTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"ASA": ASA, "PIX": ASA, "FWSM": ASA, "FTD": FTD, "NGIPS": FTD, "NGFW": FTD}
)
_LONGEST = 4096
"""Characters of a message that patterns are tried on; the products write fewer."""


def read_message(match: re.Match[str], header: Header, context: Context) -> Event:
    """The event of a message whose mark is `match`; its words stand behind it."""
    text = match.string[match.end() :].strip()
    stamp = header.stamp or Stamp.missing(context.record.received_at, None)
    rest = header.rest | kept(facility_name=match["facility"])
    message = Message(
        header._replace(rest=rest),
        stamp,
        PRODUCTS[match["device"]],
        match["uid"],
        int(match["level"]),
        text,
        Fields(),
    )
    # These are FTD's own, in a form of keys and values.
    if message.uid.startswith("43000"):
        ftd = ftd_event(message.uid, message.level, text, header, stamp, message.product)
        if ftd is not None:
            return ftd
    # The bound keeps a long message from making the patterns search for long.
    shape_and_parts = shaped(message.uid, text) if len(text) <= _LONGEST else None
    if shape_and_parts is None:
        return plain(message)
    shape, parts = shape_and_parts
    message.parts = Fields(parts)
    return READERS[shape.kind](message, shape)


class CiscoAsa(Source):
    """Cisco ASA and Firepower Threat Defense."""

    name = "cisco_asa"

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda text: [self.read_text(text, context)])

    def read_text(self, text: str, context: Context) -> Event:
        """The event of one line."""
        match = _MARK.search(text, 0, _LONGEST)
        if match is None:
            raise Unreadable(f"no '%ASA-' with level and number in '{text[:60]}'")
        return read_message(match, read_header(text[: match.start()], context), context)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        match = _MARK.search(text, 0, _LONGEST)
        if match is None:
            raise Unreadable("no '%ASA-' with level and number in the line")
        header = restamp_header(text[: match.start()], when, zone)
        return (header + text[match.start() :]).encode() + raw[len(text.encode()) :]


SOURCES = (CiscoAsa(),)
