"""Zscaler Internet Access: the feeds of its Nanolog Streaming Service and of Cloud NSS.

https://help.zscaler.com/zia/nss-feed-output-format-web-logs , the pages of the same name for
firewall, DNS and admin audit logs, and https://help.zscaler.com/zia/about-cloud-nss-feeds . Records
in JSON (alone, a line each, or in an array), in tabs as Splunk's add-on wants them, and in CEF of
the devices `NSSWeblog` and `NSSFWlog`. A feed's times have the zone of its configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.field_lookup import read_moment
from ingest.parsing.json_time import written_like
from ingest.parsing.source import Context, Event, Record, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import MONTHS, Stamp, stamp_epoch
from ingest.sources.cloud.common import EnvelopedSource
from ingest.sources.generic.cef import CHOSEN, MARK, Cef, labelled, read_cef, stamp_of
from ingest.sources.generic.cef_leef_syntax import of_cef
from ingest.sources.shared.device_header import each_line, read_header
from ingest.sources.shared.firewall import Fields
from ingest.sources.shared.key_values import certain, put
from ingest.sources.zscaler.audit import audit
from ingest.sources.zscaler.logs import READERS, Log, other

_LONGEST_HEADER = 1024
_DEVICES = {"nssweblog": "web", "nssfwlog": "fw", "nssdnslog": "dns"}
"""Names of devices in CEF, and whose reader their events have."""
_OWN_KEYS = (
    frozenset({"csip", "cdip"}),
    frozenset({"dns_req", "clt_sip"}),
    frozenset({"urlcategory", "action"}),
    frozenset({"urlcat", "action"}),
    frozenset({"adminid", "auditlogtype"}),
)
"""Columns that tell a record without a `sourcetype`."""
_TIMES = ("datetime", "time", "eventtime")
_TAB = re.compile(r"[\t ]*(?P<key>[A-Za-z_]\w{0,63})=(?P<value>[^\t]*)", re.ASCII)
_TABBED = re.compile(r"(?:^|\t)(?P<pair>[A-Za-z_]\w{0,63}=)", re.ASCII)
_CHOSEN = ("user", "login", "action", "ClientIP", "serverip", "csip", "cdip", "cip", "sip", "url")
# Not inside of a text: there a quote has a backslash before it.
_JSON_TIME = re.compile(
    rb'(?<!\\)"(?P<key>datetime|time|epochtime|eventtime)"\s*:\s*(?P<value>"[^"\\]*"|\d+)'
)
_WORDS = re.compile(
    r"(?P<week>[A-Z][a-z]{2} )(?P<month>[A-Z][a-z]{2}) +\d{1,2} \d\d:\d\d:\d\d \d{4}"
)
_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _stamp(fields: Fields, context: Context) -> Stamp:
    """When it happened: the time in seconds, else the time in the feed's own zone."""
    received_at = context.record.received_at
    # First, since seconds have no zone that could be taken wrongly.
    stamp = stamp_epoch(fields.get("epochtime"), received_at)
    if stamp.quality == "exact":
        del fields["epochtime"]
        return stamp
    zone = context.zone(None)
    named = fields.get("tz") or fields.get("timezone")
    if type(named) is str and re.fullmatch(r"[A-Za-z]{1,16}(?:/[A-Za-z_]{1,32}){0,2}", named):
        # Of a zone that no one knows, what is configured holds.
        with suppress(ValueError, OSError, KeyError):
            zone = ZoneInfo(named)
    for name in _TIMES:
        moment = read_moment(fields.get(name), zone, received_at)
        if moment is not None:
            del fields[name]
            return moment
    return Stamp.missing(received_at, fields.get("datetime"))


def _feed(fields: Mapping[str, Any]) -> str:
    """The name of a record's feed: its `sourcetype`, else what its columns tell."""
    named = fields.get("sourcetype")
    if type(named) is str and named.lower().startswith("zscalernss"):
        return named
    if "csip" in fields:
        return "zscalernss-fw"
    if "adminid" in fields:
        return "zscalernss-audit"
    return "zscalernss-dns" if "dns_req" in fields else "zscalernss-web"


def _event(feed: str, fields: Fields, stamp: Stamp, rest: Mapping[str, Any]) -> Event:
    kind = feed.lower().rpartition("-")[2]
    reader = audit if kind == "audit" else READERS.get(kind, other)
    return reader(Log(feed, fields, stamp, rest))


def _of_cef(text: str, mark: re.Match[str], context: Context) -> Event:
    if mark["cef"] is None:
        return read_cef(text, context)
    cef = of_cef(text[mark.end() :])
    kind = _DEVICES.get(cef.product.lower())
    if kind is None:
        return read_cef(text, context)
    fields = certain(cef.fields, (*CHOSEN, "request"))
    # The template for the firewall has this one label in small letters.
    for name in [name for name in fields if re.fullmatch(r"c[sn]\dlabel", name)]:
        fields[f"{name[:3]}Label"] = fields.pop(name)
    if fields.get("cs6") == "md5hash" and type(fields.get("cs6Label")) is str:
        # A template of Sentinel has the label and the value the wrong way round.
        fields["cs6"], fields["cs6Label"] = fields["cs6Label"], "md5hash"
    header = read_header(text[: mark.start()], context)
    stamp = stamp_of(fields, header, context)
    labelled(fields)
    for name, value in (("act", cef.signature), ("reason", cef.name)):
        if value and f"{name}_again" not in fields:
            fields.setdefault(name, value)
    rest = header.rest | {"version": cef.version, "header_host": header.host}
    rest = {key: value for key, value in rest.items() if value}
    return READERS[kind](Log(cef.product, fields, stamp, rest))


def _of_tabs(text: str, context: Context) -> Event:
    """A line of `2026-03-02 09:00:00<tab>reason=Allowed<tab>event_id=...`."""
    first = _TABBED.search(text, 0, _LONGEST_HEADER)
    if first is None or "\t" not in text:
        raise Unreadable(f"neither JSON, CEF nor fields between tabs in '{text[:60]}'")
    fields = Fields()
    for part in text[first.start("pair") :].split("\t"):
        match = _TAB.fullmatch(part)
        if match:
            put(fields, match["key"], match["value"])
        elif part.strip():
            put(fields, "text", part)
    certain(fields, _CHOSEN)
    header = read_header(text[: first.start()].rstrip(), context)
    stamp = _stamp(fields, context)
    if stamp.quality == "received" and header.stamp:
        stamp = header.stamp
    return _event(_feed(fields), fields, stamp, header.rest)


@dataclass(frozen=True)
class Zscaler(EnvelopedSource):
    """ZIA's feeds."""

    name: str = "zscaler"
    time_keys: ClassVar[tuple[str, ...]] = (*_TIMES, "epochtime")

    def is_own(self, fields: dict[str, Any]) -> bool:
        named = fields.get("sourcetype")
        if type(named) is str and named.lower().startswith("zscalernss"):
            return True
        return any(keys <= fields.keys() for keys in _OWN_KEYS)

    def read(self, fields: dict[str, Any], context: Context) -> Event:
        inner = fields.pop("event") if type(fields.get("event")) is dict else {}
        feed = _feed(fields if "sourcetype" in fields else fields | inner)
        if fields.get("sourcetype") == feed:
            del fields["sourcetype"]
        # A record's own column wins over the envelope's, which keeps its name with a mark.
        rest = {name if name not in inner else f"{name}_": fields[name] for name in fields}
        merged = Fields(inner | rest if inner else fields)
        return _event(feed, merged, _stamp(merged, context), {})

    def parse(self, record: Record, context: Context) -> list[Event]:
        if record.raw.lstrip()[:1] in (b"{", b"[") or record.raw[:2] == b"\x1f\x8b":
            return super().parse(record, context)
        return each_line(record.raw, lambda text: self._line(text, context))

    def _line(self, text: str, context: Context) -> list[Event]:
        mark = MARK.search(text, 0, _LONGEST_HEADER)
        if mark:
            return [_of_cef(text, mark, context)]
        # JSON behind a header of syslog; a value between tabs may hold braces as well.
        brace = text.find('{"', 0, _LONGEST_HEADER)
        if brace >= 0 and text.rstrip()[-1:] == "}" and "\t" not in text[:brace]:
            return self.events(decode_object(text[brace:].encode()), context)
        return [_of_tabs(text, context)]

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        if MARK.search(raw[:_LONGEST_HEADER].decode("utf-8", "replace")):
            return Cef().restamp(raw, when, zone)

        def new(match: re.Match[bytes]) -> bytes:
            return match[0][: match.start("value") - match.start()] + _again(
                match["value"].decode("utf-8", "replace"), when, zone
            )

        if raw.lstrip()[:1] in (b"{", b"["):
            changed, count = _JSON_TIME.subn(new, raw)
            if count:
                return changed
            raise Unreadable("no 'datetime', 'time' or 'epochtime' in the record")
        text = one_line(raw)
        first = text.partition("\t")[0]
        again = _again(f'"{first}"', when, zone)[1:-1]
        return again + raw[len(first.encode()) :]


def _again(value: str, when: datetime, zone: ZoneInfo) -> bytes:
    """`when`, written as the JSON text `value` is."""
    if value.isdecimal():
        return written_like(int(value), "epochtime", when, zone).encode()
    bare = value[1:-1]
    if bare.isdecimal():
        return f'"{written_like(int(bare), "epochtime", when, zone)}"'.encode()
    if _WORDS.fullmatch(bare):
        local = when.astimezone(zone)
        week, month = _WEEK[local.weekday()], MONTHS[local.month - 1]
        return f'"{week} {month} {local.day:2d} {local:%H:%M:%S} {local.year}"'.encode()
    return written_like(bare, "datetime", when, zone).encode()


SOURCES = (Zscaler(),)
