"""Reading the audit records of cloud services: taking fields out of nested objects, unpacking.

A field that is used is taken out of its object, so that what is left is what found no
column. One of an unexpected type, or that is no address where one should stand, is not
taken: it stays under its own name. Names are found whatever their case, since the same
record is `CreatedAt` from an API, `createdAt` in an export and `createdat` in some lakes.
"""

from __future__ import annotations

import base64
import binascii
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.json_source import JsonSource, unpacked
from ingest.parsing.json_time import restamp_json
from ingest.parsing.ocsf import INFORMATIONAL, OTHER, address, unmapped
from ingest.parsing.ocsf_export import milliseconds
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import (
    FILE_BYTES,
    decode_object,
    integral,
    require_repeatable,
    require_single,
)
from ingest.parsing.timestamps import Stamp, stamp_epoch, stamp_iso

Fields = dict[str, Any]
_CREATE, _READ, _UPDATE, _DELETE = 1, 2, 3, 4
PORTS = 65535
_UTC = ZoneInfo("UTC")


# -- fields --------------------------------------------------------------------------------------


def key_of(fields: Mapping[str, Any], name: str) -> str | None:
    """The key of `fields` that is `name`, in this case or else in any; None if there is none."""
    # The usual spelling first: the search through all keys is for the few that differ.
    if name in fields:
        return name
    low = name.lower()
    return next((key for key in fields if len(key) == len(name) and key.lower() == low), None)


def look(fields: Mapping[str, Any], *path: str) -> Any:
    """The value at `path`, left in place; None where there is none."""
    value: Any = fields
    for name in path:
        key = key_of(value, name) if type(value) is dict else None
        if key is None:
            return None
        value = value[key]
    return value


def look_text(fields: Mapping[str, Any], *path: str) -> str | None:
    """The text at `path`, left in place; None for anything else, and for empty text."""
    value = look(fields, *path)
    return value if type(value) is str and value else None


def inner(fields: Mapping[str, Any], *path: str) -> Fields:
    """The object at `path`, left in place; an empty one where there is none."""
    value = look(fields, *path)
    return value if type(value) is dict else {}


def listed(fields: Mapping[str, Any], *path: str) -> list[Fields]:
    """The objects of the array at `path`, left in place; one that is no array counts as its own."""
    value = look(fields, *path)
    if type(value) is dict:
        return [value]
    return [element for element in value if type(element) is dict] if type(value) is list else []


def _trail(fields: Fields, path: tuple[str, ...]) -> list[tuple[Fields, str]] | None:
    """The objects on the way to `path`, each with its key; None where the way ends early."""
    trail: list[tuple[Fields, str]] = []
    value: Any = fields
    for name in path:
        key = key_of(value, name) if type(value) is dict else None
        if key is None:
            return None
        trail.append((value, key))
        value = value[key]
    return trail


def _remove(trail: list[tuple[Fields, str]]) -> None:
    for holder, key in reversed(trail):
        del holder[key]
        # An object that has lost its last field would only be noise in `unmapped`.
        if holder:
            break


def take(fields: Fields, *path: str) -> Any:
    """The value at `path`, taken out, and with it the objects that hold nothing else."""
    trail = _trail(fields, path)
    if trail is None:
        return None
    holder, key = trail[-1]
    value = holder[key]
    _remove(trail)
    return value


def take_text(fields: Fields, *path: str) -> str | None:
    """The text at `path`, taken out; anything else stays, and empty text, which says nothing."""
    trail = _trail(fields, path)
    if trail is None:
        return None
    holder, key = trail[-1]
    value = holder[key]
    if type(value) is not str or not value:
        return None
    _remove(trail)
    return value


def take_name(fields: Fields, *path: str) -> str | None:
    """The text or whole number at `path` as text: some services write ids either way."""
    value = integral(look(fields, *path))
    if type(value) is int:
        return str(integral(take(fields, *path)))
    return take_text(fields, *path)


def take_number(fields: Fields, *path: str, most: int = 2**31 - 1) -> int | None:
    """The whole number at `path`, from 0 to `most`, as a number or its digits, taken out."""
    value = integral(look(fields, *path))
    if type(value) is str and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if type(value) is not int or not 0 <= value <= most:
        return None
    take(fields, *path)
    return value


def take_ip(fields: Fields, *path: str) -> str | None:
    """The IP address at `path`, taken out."""
    value = look(fields, *path)
    ip_address = address(value) if type(value) is str else None
    if ip_address:
        take(fields, *path)
    return ip_address


def take_texts(fields: Fields, *path: str) -> list[str] | None:
    """The texts of an array of nothing else at `path`, taken out."""
    value = look(fields, *path)
    if type(value) is list and value and all(type(element) is str for element in value):
        return list(take(fields, *path))
    return None


def take_time(fields: Fields, context: Context, *paths: tuple[str, ...]) -> Stamp:
    """The first time there is at one of `paths`, taken out: ISO text or a number since 1970.

    What cannot be read stays, and then the arrival time stands in.
    """
    received_at = context.record.received_at
    first: object = None
    for path in paths:
        stamp = _stamp(look(fields, *path), context)
        if stamp is not None and stamp.quality != "received":
            take(fields, *path)
            return stamp
        first = first or look(fields, *path)
    return Stamp.missing(received_at, first)


def moment(fields: Fields, context: Context, *path: str) -> datetime | None:
    """The time at `path`, taken out; None where there is none that can be read."""
    stamp = _stamp(look(fields, *path), context)
    if stamp is None or stamp.quality == "received":
        return None
    take(fields, *path)
    return stamp.time


def _stamp(value: object, context: Context) -> Stamp | None:
    received_at = context.record.received_at
    if type(value) is str and not value.isdecimal():
        return stamp_iso(value, context.zone(None), received_at)
    if type(value) in (int, float, str) and value:
        return stamp_epoch(value, received_at)
    return None


def ms(time: datetime | None) -> int | None:
    """A time as OCSF writes it in `more`: milliseconds since 1970."""
    return None if time is None else milliseconds(time)


def filled(**fields: Any) -> Fields | None:
    """The fields that have a value, as a struct; None if there is none."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])} or None


def remains(fields: Fields) -> str | None:
    """What is left of a record, as JSON text: without objects that were emptied, and nulls."""
    return unmapped(_pruned(fields) or {})


def _pruned(value: Any) -> Any:
    if type(value) is dict:
        kept = {name: _pruned(element) for name, element in value.items()}
        return {name: element for name, element in kept.items() if element is not None} or None
    if type(value) is list:
        return [element for element in map(_pruned, value) if element is not None] or None
    return value


# -- meanings ------------------------------------------------------------------------------------

_WORDS = {
    _CREATE: "add build clone copy create draft enroll export fork generate import insert install "
    "invite issue mint new open register request run submit upload",
    _READ: "access aggregated batchget check count describe download fetch get head list lookup "
    "preview proxy pull query read search select show test view watch",
    _UPDATE: "activate accept allow apply approve archive assign attach authorize block change "
    "configure convert deactivate demote disable edit enable finish grant lock merge modify move "
    "patch post promote publish push put rename replace reset resume restore rotate set start "
    "stop suspend transfer undelete unarchive unlock unsuspend update upgrade use write",
    _DELETE: "cancel clear delete deletecollection destroy detach dismiss drop leave purge reject "
    "remove revoke unassign uninstall unlink",
}
_VERBS: Mapping[str, int] = MappingProxyType(
    {word: activity for activity, words in _WORDS.items() for word in words.split()}
)
"""What a word of an operation does, as an activity of API Activity."""
_WORD = re.compile(r"[A-Z]?[a-z]+", re.ASCII)
_SEVERITY = MappingProxyType(
    {
        "DEBUG": INFORMATIONAL,
        "INFO": INFORMATIONAL,
        "INFORMATIONAL": INFORMATIONAL,
        "DEFAULT": INFORMATIONAL,
        "NOTICE": INFORMATIONAL,
        "LOW": 2,
        "WARN": 3,
        "WARNING": 3,
        "MEDIUM": 3,
        "ERROR": 4,
        "HIGH": 4,
        "CRITICAL": 5,
        "ALERT": 5,
        "EMERGENCY": 6,
    }
)


def activity_of(word: str) -> int:
    """The activity of API Activity that an operation such as `CreateKey` or `sso_enabled` is.

    The first of its words that is a known verb, also in the past tense, decides.
    """
    # Bounded: an operation's name may come from outside.
    for part in _WORD.findall(word[:200]):
        low = part.lower()
        # `created` loses a d, `added` an ed; what is left is looked up.
        for form in (low, low.removesuffix("d"), low.removesuffix("ed")):
            if form in _VERBS:
                return _VERBS[form]
    return OTHER


def severity_of(level: str | None) -> int:
    """OCSF's severity of a level such as `WARNING`; informational where it is no known one."""
    return _SEVERITY.get((level or "").upper(), INFORMATIONAL)


def unnamed(endpoint: Fields | None) -> Fields:
    """The source of an API call, which OCSF requires, where the record does not tell it."""
    return endpoint if endpoint and any(endpoint.values()) else {"name": "unknown"}


def mail(name: str | None) -> str | None:
    """`name` if it looks like a mail address."""
    if name and len(name) < 255 and name.count("@") == 1 and _MAIL.fullmatch(name):
        return name
    return None


_MAIL = re.compile(
    r"[A-Za-z0-9._%+'-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}", re.ASCII
)


# -- envelopes -----------------------------------------------------------------------------------

_TEXTS = ("message", "Message", "log", "_raw", "raw", "body")
"""Where shippers put a record as text: Filebeat, SNS, Fluent Bit, Splunk."""
_LISTS = (
    ("Records",),
    ("records",),
    ("Findings",),
    ("findings",),
    ("items",),
    ("entries",),
    ("value",),
    ("events",),
    ("data", "events"),
)
_OBJECTS = (("detail",), ("event",), ("Event",), ("_source",), ("data",))
# Envelopes in envelopes: without a bound a short record could unfold for long.
NESTING = 4


class EnvelopedSource(JsonSource):
    """A source of JSON objects that may come in the envelopes of those who carry them.

    What an envelope says besides goes with each of its records, as `envelope`.
    """

    envelope: ClassVar[str | None] = None  # unpacked here, since there are several
    time_keys: ClassVar[tuple[str, ...]] = ()
    """Where a top-level time may stand, for `restamp`."""

    @abstractmethod
    def is_own(self, fields: Fields) -> bool:
        """Whether an object is a record of this source rather than an envelope of some."""

    @abstractmethod
    def read(self, fields: Fields, context: Context) -> Event:
        """The event of one record. Raises `Unreadable`."""

    def read_all(self, fields: Fields, context: Context) -> list[Event]:
        """The events of one record, for a source whose records hold several."""
        return [self.read(fields, context)]

    def events(self, fields: Fields, context: Context) -> list[Event]:
        if self.is_own(fields):
            return self.read_all(fields, context)
        event_list: list[Event] = []
        read = 0
        for each in unwrap(fields, self.is_own):
            try:
                if isinstance(each, Unreadable):
                    raise each
                require_single(each)
                event_list += self.read_all(each, context)
                read += 1
            except Unreadable as why:
                event_list.append({"dead_letter_reason": str(why)})
        if not read:
            raise Unreadable(event_list[0]["dead_letter_reason"] if event_list else self.foreign)
        return event_list

    @property
    def foreign(self) -> str:
        """Why an object that is nothing of this source cannot be read."""
        return f"neither a record of {self.name} nor an envelope of such"

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        fields = decode_object(raw)
        keys = (key for name in self.time_keys if (key := key_of(fields, name)))
        key = next(keys, None)
        if key is None:
            raise Unreadable(f"none of {', '.join(self.time_keys)} in the object")
        return restamp_json(raw, key, when, zone)


def unwrap(
    fields: Fields, is_own: Callable[[Fields], bool], depth: int = 0
) -> Iterator[Fields | Unreadable]:
    """The records in an envelope; in place of one that cannot be read, why."""
    for content in _contents(fields):
        if isinstance(content, Unreadable) or is_own(content):
            yield content
        elif depth < NESTING:
            result = False
            for each in unwrap(content, is_own, depth + 1):
                result = True
                yield each
            if not result:
                yield Unreadable("an element of the envelope that is no record of this source")


def _contents(fields: Fields) -> Iterator[Fields | Unreadable]:
    """What stands in an envelope, one level down, with what the envelope says besides."""
    if type(fields.get("logEvents")) is list:
        lines = fields.pop("logEvents")
        yield from _with(fields, lines, _of_line)
        return
    # Lists before objects: an object of one list is its carrier, whatever else it says.
    for path in _LISTS:
        value = look(fields, *path)
        if type(value) is list and value:
            take(fields, *path)
            yield from _with(fields, value, _element)
            return
    holder = fields["message"] if type(fields.get("message")) is dict else fields
    data = holder.get("data")
    if type(data) is str and data:
        del holder["data"]
        yield from _with(fields, [data], _of_base64)
        return
    for path in _OBJECTS:
        value = look(fields, *path)
        if type(value) is dict and value:
            take(fields, *path)
            yield from _with(fields, [value], _element)
            return
    for key in _TEXTS:
        value = fields.get(key)
        if type(value) is str and value.lstrip()[:1] == "{":
            del fields[key]
            yield from _with(fields, [value], _of_text)
            return


def _with(
    envelope: Fields, elements: list[Any], read: Callable[[Any], Fields | Unreadable]
) -> Iterator[Fields | Unreadable]:
    try:
        require_repeatable(envelope, len(elements))
    except Unreadable as why:
        yield why
        return
    for fields in map(read, elements):
        if not isinstance(fields, Unreadable) and envelope:
            # A record may have such a key itself, and an envelope lie in another.
            fields = dict(fields)
            name = "envelope"
            while name in fields:
                name += "_"
            fields[name] = envelope
        yield fields


def _element(value: object) -> Fields | Unreadable:
    if type(value) is dict:
        return value
    if type(value) is str and value.lstrip()[:1] == "{":
        return _of_text(value)
    return Unreadable("an element of the envelope that is no object")


def _of_line(line: object) -> Fields | Unreadable:
    """One of CloudWatch's `logEvents`."""
    if type(line) is not dict or type(line.get("message")) is not str:
        return Unreadable("logEvents: an element without a message")
    text_value = _of_text(line.pop("message"))
    return text_value if isinstance(text_value, Unreadable) else text_value | {"log_event": line}


def _of_text(text: str) -> Fields | Unreadable:
    try:
        # As strict as the outer text: what is packed inside must not pass more easily.
        return decode_object(text.encode("utf-8", "surrogatepass").strip(), FILE_BYTES)
    except Unreadable as why:
        return why


def _of_base64(text: str) -> Fields | Unreadable:
    try:
        return decode_object(unpacked(base64.b64decode(text, validate=True)), FILE_BYTES)
    except (binascii.Error, ValueError):
        return Unreadable("data: not base64")
    except Unreadable as why:
        return Unreadable(f"data: {why}")
