"""The `System` part of an event, which XML and its translations to JSON share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.source import Context, Unreadable
from ingest.parsing.strict_json import kind
from ingest.parsing.timestamps import EPOCH, Stamp, stamp_epoch, stamp_iso
from ingest.sources.windows.columns.many import each, is_of
from ingest.sources.windows.record import (
    Logged,
    as_text,
    is_sysmon,
    keywords_of,
    level_of,
    whole,
)
from ingest.sources.windows.rendered import data_of

_UTC = ZoneInfo("UTC")
MOST_EVENT_ID = 2**32 - 1


def utc_stamp(value: object, received: datetime) -> Stamp:
    """A time that is UTC whether it says so or not; a number counts from 1970."""
    if type(value) is int or type(value) is float:
        return stamp_epoch(value, received)
    if type(value) is not str:
        return Stamp.missing(received, None)
    text = value.strip()
    stamp = stamp_iso(text, _UTC, received)
    if stamp.quality == "received" and text.endswith(" UTC"):
        stamp = stamp_iso(text.removesuffix(" UTC"), _UTC, received)
    # The event log keeps UTC, so a time without a zone is not assumed but known.
    return Stamp.exact(stamp.time) if stamp.quality == "assumed_zone" else stamp


def event_id_of(value: object) -> int:
    """An event id from number or text. Raises `Unreadable`."""
    number = whole(value)
    if number is None or not 0 <= number <= MOST_EVENT_ID:
        description = f"'{value[:40]}'" if isinstance(value, str) else kind(value)
        raise Unreadable(f"EventID: expected a number, found {description}")
    # The upper half is what the provider adds (qualifiers), not the id.
    return number & 0xFFFF if number > 0xFFFF else number


class System:
    """What the `System` part says, taken element by element; `rest` is for unmapped."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.event_id: object = None
        self.time: object = None
        self.message: str | None = None
        self.provider: str | None = None
        self.guid: str | None = None
        self.channel: str | None = None
        self.computer: str | None = None
        self.record_id: str | None = None
        self.activity_id: str | None = None
        self.level: int | None = None
        self.failed: bool | None = None
        self.sid: str | None = None
        self.pid: int | None = None
        self.tid: int | None = None
        self.rest: dict[str, Any] = {}

    def take(self, name: str, value: Any, attributes: Mapping[str, Any]) -> None:
        """One element: its text (or number) and its attributes."""
        left = {
            key: attribute for key, attribute in attributes.items() if attribute not in (None, "")
        }
        if name == "Provider":
            self.provider = _string(left, "Name") or _text(value)
            self.guid = _string(left, "Guid")
        elif name == "EventID":
            self.event_id = value if value is not None else left.pop("Value", None)
        elif name in ("Channel", "Computer") and type(value) is str:
            setattr(self, name.lower(), value)
        elif name == "EventRecordID":
            self.record_id = _text(value)
        elif name == "TimeCreated":
            self.time = left.pop("SystemTime", value)
        elif name == "Level" and level_of(value) is not None:
            self.level = level_of(value)
        elif name == "Keywords":
            self.failed, mask = keywords_of(value)
            self.rest["Keywords"] = mask or value
        elif name == "Correlation":
            self.activity_id = _string(left, "ActivityID")
        elif name == "Execution":
            self.pid, self.tid = whole(left.get("ProcessID")), whole(left.get("ThreadID"))
            left = {
                key: attribute
                for key, attribute in left.items()
                if key not in ("ProcessID", "ThreadID")
            }
        elif name == "Security":
            self.sid = _string(left, "UserID")
        elif value is not None:
            self.rest[name] = as_text(value)
        for key, attribute in left.items():
            # Two elements may have an attribute of the same name.
            self.rest[key if key not in self.rest else f"{name}.{key}"] = as_text(attribute)

    def words(self, words: Iterable[object]) -> None:
        """Keywords in words, as a renderer or a shipper adds them."""
        kept = [word for word in words if type(word) is str and word.strip()]
        lower = {word.strip().lower() for word in kept}
        # A renderer writes the words in the language of its machine.
        if lower & {"audit failure", "überwachung gescheitert", "échec de l'audit"}:
            self.failed = True
        elif lower & {"audit success", "überwachung erfolgreich", "succès de l'audit"}:
            self.failed = False
        if kept:
            self.rest["KeywordsText"] = kept


def logged(about: System, data: dict[str, Any]) -> Logged:
    """The event of a `System` part and its data. Raises `Unreadable`."""
    event_id = event_id_of(about.event_id)
    log = Logged(
        event_id=event_id,
        provider=about.provider,
        channel=about.channel,
        computer=about.computer or about.context.host,
        stamp=Stamp.missing(about.context.record.received_at, None),
        data=data,
        guid=about.guid,
        record_id=about.record_id,
        activity_id=about.activity_id,
        level=about.level,
        failed=about.failed,
        sid=about.sid,
        pid=about.pid,
        tid=about.tid,
        message=about.message,
        rest=about.rest,
    )
    # What has a field of its own is never taken from the message, which is free text.
    if not data and log.message:
        data |= data_of(log)
    if not by_sysmon(log, data):
        log.stamp = each(utc_stamp, about.time, about.context.record.received_at)
    elif about.time is not None:
        log.rest["TimeCreated"] = about.time
    return log


def by_sysmon(log: Logged, data: dict[str, Any]) -> bool:
    """Takes Sysmon's own `UtcTime`, if there is one, as the time of the event.

    That is when it happened; the log's time is when it was written down.
    """
    own = data.get("UtcTime")
    if not is_of(own, str) or not is_sysmon(log.provider, log.guid, log.channel):
        return False
    stamp = each(_own_stamp, own)
    if stamp is None:
        return False
    log.stamp = stamp
    del data["UtcTime"]
    return True


def _own_stamp(value: str) -> Stamp | None:
    # The arrival stands in for what cannot be read alone.
    stamp = utc_stamp(value, EPOCH)
    return None if stamp.quality == "received" else stamp


def _text(value: object) -> str | None:
    text_value = as_text(value)
    return text_value.strip() or None if type(text_value) is str else None


def _string(left: dict[str, Any], name: str) -> str | None:
    """Take the text `name` out of attributes."""
    value = left.get(name)
    if type(value) is not str or not value.strip():
        return None
    del left[name]
    return value.strip()
