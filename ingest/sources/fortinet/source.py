"""FortiGate, Fortinet's firewalls: FortiOS 5 to 7 in `key=value` form.

https://docs.fortinet.com/document/fortigate/7.4.0/fortios-log-message-reference . The
time is `eventtime` (seconds to nanoseconds since 1970) where FortiOS writes it, else
`date` and `time` with `tz`, else the local time of whatever zone is configured. Logs
that FortiOS was told to write as CEF are read by `cef`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from zoneinfo import ZoneInfo

from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import EPOCH, Stamp, stamp_epoch, stamp_iso
from ingest.sources.fortinet.event_logs import of_event
from ingest.sources.fortinet.traffic_logs import Log, session
from ingest.sources.fortinet.utm_logs import of_utm
from ingest.sources.generic.cef import MARK as CEF_MARK
from ingest.sources.generic.cef import read_cef
from ingest.sources.shared.device_header import Header, each_line, read_header, restamp_header
from ingest.sources.shared.firewall import Fields
from ingest.sources.shared.key_values import certain, key_values

_START = re.compile(
    r"(?:(?<=^)|(?<=[\s>:,]))(?:date|logver|timestamp|devname|devid|itime|eventtime|logid|log_id|"
    r"type|time|device_id)=",
    re.ASCII,
)
_LONGEST_HEADER = 1024
_CHOSEN = """
    srcip dstip srcport dstport src dst src_port dst_port remip locip srcmac srcname dstname
    user action status devname
"""
_CHOSEN_NAMES = _CHOSEN.split()
"""Keys that must not stand twice with two values: others may have written one of them."""
_OFFSET = re.compile(r"[+-]\d\d:?\d\d", re.ASCII)

# -- lines -------------------------------------------------------------------------------------


def _stamp(fields: Fields, header: Header, context: Context) -> Stamp:
    received_at = context.record.received_at
    spelled = fields.get("eventtime")
    if type(spelled) is str:
        stamp = stamp_epoch(spelled, received_at)
        # FortiOS writes 0 where it has no such time.
        if stamp.quality == "exact" and stamp.time > EPOCH:
            del fields["eventtime"]
            return stamp
    day, clock = fields.get("date"), fields.get("time")
    host = fields.get("devname") or header.host
    zone = context.zone(host if type(host) is str else None)
    if type(day) is str and type(clock) is str:
        offset = str(fields.get("tz", ""))
        offset = offset if _OFFSET.fullmatch(offset) else ""
        stamp = stamp_iso(f"{day} {clock}{offset}", zone, received_at)
        if stamp.quality != "received":
            return stamp
    for name in ("timestamp", "itime"):
        stamp = stamp_epoch(fields.get(name), received_at)
        if stamp.quality == "exact":
            return stamp
    return header.stamp or Stamp.missing(received_at, day)


def read_log(text: str, context: Context) -> Event:
    """The event of one line."""
    start = _START.search(text, 0, _LONGEST_HEADER)
    # A CEF extension has keys such as `type=` as well, so the mark before them decides.
    if start is None or CEF_MARK.search(text, 0, start.start()):
        if CEF_MARK.search(text, 0, _LONGEST_HEADER):
            return read_cef(text, context)
        raise Unreadable(f"no 'date=' or 'logid=' in '{text[:60]}'")
    body = text[start.start() :]
    header = read_header(text[: start.start()].rstrip(" ,"), context)
    # In the CSV form the first value ends with a comma and has no blank behind it.
    first = body.split("=", 2)[1] if body.count("=") > 1 else ""
    fields = certain(key_values(body, commas="," in first and " " not in first), _CHOSEN_NAMES)
    # Any text may hold `time=`; these are what makes it one of FortiOS's logs.
    if not fields.keys() & {"type", "logid", "log_id", "subtype"}:
        raise Unreadable("none of 'type', 'subtype' and 'logid' among the pairs")
    kind, subtype = str(fields.get("type", "")), str(fields.get("subtype", ""))
    stamp = _stamp(fields, header, context)
    log = Log(fields, kind, subtype, stamp, header, context)
    if kind == "traffic":
        return session(log)
    if kind == "event":
        return of_event(log)
    return of_utm(log)


class FortiGate(Source):
    """FortiGate's logs."""

    name = "fortigate"

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda text: [read_log(text, context)])

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        start = _START.search(text, 0, _LONGEST_HEADER)
        if start is None:
            raise Unreadable("no 'date=' in the line")
        head, body = text[: start.start()], text[start.start() :]
        offset = re.search(r'(?<![\w"])tz="?([+-]\d\d):?(\d\d)', body)
        local = when.astimezone(zone)
        if offset:
            local = when.astimezone(datetime.strptime(offset[1] + offset[2], "%z").tzinfo)
        since = when - EPOCH
        micros = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds

        def epoch(match: re.Match[str]) -> str:
            digits = len(match[2])
            return f"{match[1]}{str(micros * 1000).zfill(19)[:digits]}"

        changed = re.sub(r"(?<!\w)(date=)\d{4}-\d\d-\d\d", rf"\g<1>{local:%Y-%m-%d}", body, count=1)
        changed = re.sub(
            r"(?<!\w)(time=)\d\d:\d\d:\d\d", rf"\g<1>{local:%H:%M:%S}", changed, count=1
        )
        changed = re.sub(r"(?<!\w)(eventtime=)(\d{10,19})(?!\d)", epoch, changed, count=1)
        if changed == body and "date=" not in body:
            raise Unreadable("no 'date=' in the line")
        # Most have no time before their own.
        with suppress(Unreadable):
            head = restamp_header(head, when, zone)
        return (head + changed).encode() + raw[len(text.encode()) :]


SOURCES = (FortiGate(),)
