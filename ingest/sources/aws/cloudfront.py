"""CloudFront's standard logs: columns between tabs, which the line `#Fields:` names.

https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html
Values are URL-encoded, so that nothing a client sends can end a column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from ingest.parsing.framed_source import each_line
from ingest.parsing.json_source import unpacked
from ingest.parsing.ocsf import BASE, address, kept
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import Stamp, stamp_iso
from ingest.sources.shared.http_exchange import (
    NONE,
    PORT,
    Exchange,
    http_event,
    milliseconds,
    whole,
)

_PRODUCT: Mapping[str, str] = {"name": "CloudFront", "vendor_name": "AWS"}
_UTC = ZoneInfo("UTC")
_FIELDS = re.compile(r"#Fields:\s*(.*)", re.DOTALL)
_WORDS_USUAL = """
    date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status
    cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id
    x-host-header cs-protocol cs-bytes time-taken x-forwarded-for ssl-protocol ssl-cipher
    x-edge-response-result-type cs-protocol-version fle-status fle-encrypted-fields c-port
    time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len sc-range-
    start sc-range-end
"""
_USUAL = _WORDS_USUAL.split()
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)\t(\d\d:\d\d:\d\d)", re.ASCII)


def _text(fields: dict[str, str], name: str) -> str | None:
    value = fields.pop(name, None)
    if value is None or value in NONE:
        return None
    # CloudFront encodes what it logs, spaces as `%20`; some writers did so twice.
    return unquote(value, errors="replace")


def _event(fields: dict[str, str], context: Context) -> Event:
    received_at = context.record.received_at
    stamp = stamp_iso(f"{fields.pop('date', '')}T{fields.pop('time', '')}", _UTC, received_at)
    # Its times are in UTC, whatever is configured.
    stamp = stamp if stamp.quality == "received" else Stamp.exact(stamp.time)
    x = Exchange()
    ip = fields.pop("c-ip", "-")
    if address(ip):
        x.client = ip
    elif ip not in NONE:
        x.rest["c-ip"] = ip
    x.client_port = whole(fields.pop("c-port", None), PORT)
    x.method, query = _text(fields, "cs-method"), fields.pop("cs-uri-query", "-")
    stem = fields.pop("cs-uri-stem", "-")
    if stem not in NONE:
        x.target = stem if query in NONE else f"{stem}?{query}"
    x.host = _text(fields, "x-host-header") or _text(fields, "cs(Host)")
    x.scheme = _text(fields, "cs-protocol")
    x.agent, x.referrer = _text(fields, "cs(User-Agent)"), _text(fields, "cs(Referer)")
    x.code = whole(fields.pop("sc-status", None), 999)
    x.received, x.sent = whole(fields.pop("sc-bytes", None)), whole(fields.pop("cs-bytes", None))
    x.content_type = _text(fields, "sc-content-type")
    x.duration = milliseconds(fields.pop("time-taken", None), 1000)
    x.tls = kept(version=_text(fields, "ssl-protocol"), cipher=_text(fields, "ssl-cipher"))
    x.meta = kept(
        uid=_text(fields, "x-edge-request-id"), event_code=_text(fields, "x-edge-result-type")
    )
    through = _text(fields, "x-forwarded-for")
    if through:
        x.forwarded_for(through)
    x.rest |= {name: value for name, value in fields.items() if value not in NONE}
    return http_event(x, stamp, _PRODUCT)


class CloudFront(Source):
    """CloudFront's standard logs."""

    name = "aws_cloudfront"

    def is_header(self, line: bytes) -> bool:
        return line.startswith((b"#Fields:", b"#Version:"))

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = unpacked(record.raw)
        header = (context.header or b"").decode("utf-8", "replace")
        names = [*_names(header), *_USUAL][: len(_names(header)) or len(_USUAL)]

        def read(line: bytes) -> Event:
            nonlocal names
            text = one_line(line)
            if text.startswith("#"):
                names = _names(text) or names
                stamp = Stamp.missing(context.record.received_at, None)
                x = Exchange(rest={"header": text})
                base: dict[str, Any] = {"class_uid": BASE, "activity_id": 0}
                return http_event(x, stamp, _PRODUCT, message="Names of columns", **base)
            values = text.split("\t")
            # The first twelve columns have been in every version of the format; others were added
            # behind them.
            if len(values) < 12 or _TIME.match(text) is None:
                raise Unreadable(f"no line of CloudFront's columns at byte 0: '{text[:40]}'")
            extra = [f"column_{number}" for number in range(len(names) + 1, len(values) + 1)]
            return _event(dict(zip([*names, *extra], values, strict=False)), context)

        return each_line(raw, read)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        local = when.astimezone(_UTC)
        new, changed = _TIME.subn(f"{local:%Y-%m-%d}\t{local:%H:%M:%S}", text, count=1)
        if not changed:
            raise Unreadable("no date and time at the start of the line")
        return new.encode() + raw[len(text.encode()) :]


def _names(header: str) -> list[str]:
    for line in reversed(header.splitlines()):
        match = _FIELDS.fullmatch(line.strip())
        if match:
            return match[1].split()
    return []


SOURCES = (CloudFront(),)
