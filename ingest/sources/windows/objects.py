"""Windows events as JSON made from their XML: `{"Event": {"System": {...}, "EventData": {...}}}`.

Each tool has its own way with attributes and text: evtx_dump writes `#attributes` and
`#text` (https://github.com/omerbenamram/evtx) or `Provider_attributes` beside `Provider`,
xmltodict and python-evtx `@Name` and `#text`, Velociraptor and others plain keys. EvtxECmd
packs the data into text under `Payload`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ingest.parsing.source import Context, Unreadable
from ingest.parsing.strict_json import kind
from ingest.sources.windows.record import Logged, as_text, whole
from ingest.sources.windows.system_part import System, logged

TEXT = ("#text", "_text", "text", "Value", "__text", "_value", "$t", "_")
_WRAPPERS = ("#attributes", "_attributes", "$", "attributes")
DATA_PARTS = ("EventData", "UserData", "ProcessingErrorData", "DebugData")


def _split(value: Any) -> tuple[Any, dict[str, Any]]:
    """The text and the attributes of an element, in any tool's way."""
    if type(value) is not dict:
        return value, {}
    attributes: dict[str, Any] = {}
    text = None
    for key, element in value.items():
        if key in _WRAPPERS and type(element) is dict:
            attributes |= element
        elif key in TEXT and type(element) is not dict:
            text = element
        else:
            attributes[key.removeprefix("@").removeprefix("-")] = element
    return text, attributes


def logged_of_object(fields: dict[str, Any], context: Context) -> Logged:
    """The event of one object, which is used up. Raises `Unreadable`."""
    # Only EvtxECmd has these two at the top.
    if "Payload" in fields and "EventId" in fields:
        return _of_evtxecmd(fields, context)
    key = next((name for name in ("Event", "event") if type(fields.get(name)) is dict), None)
    event = fields.pop(key) if key else fields
    outer = fields if key else {}
    system = event.pop("System", None)
    if type(system) is not dict:
        raise Unreadable("no 'Event.System' in the record")
    about = System(context)
    for name, value in system.items():
        base = name.removesuffix("_attributes")
        # Taken together with the element of that name, beside which it stands.
        if base != name and base in system:
            continue
        beside = system.get(f"{name}_attributes")
        text, attributes = _split(value)
        if base != name:
            text, attributes, name = None, value if type(value) is dict else {}, base
        if type(beside) is dict:
            attributes = {**attributes, **beside}
        about.take(name, text, attributes)
    data: dict[str, Any] = {}
    for part in DATA_PARTS:
        content = event.pop(part, None)
        attributes = event.pop(f"{part}_attributes", None)
        if content is not None:
            _data(content, data, part != "EventData")
        if type(attributes) is dict:
            data |= {
                f"{part}.{name_row}": as_text(two)
                for name_row, two in attributes.items()
                if "xmlns" not in name_row
            }
    _rendering(event, about)
    for left in (event, outer):
        about.rest |= {
            name: name_row for name, name_row in left.items() if not _namespace(name, name_row)
        }
    message = about.rest.get("Message")
    if about.message is None and type(message) is str:
        about.message = about.rest.pop("Message")
    return logged(about, data)


def _namespace(name: str, value: Any) -> bool:
    """Whether it says nothing but the namespace of the XML, which all events share."""
    if value is None or "xmlns" in name:
        return True
    if name in _WRAPPERS or name.endswith("_attributes"):
        return type(value) is dict and all("xmlns" in element for element in value)
    return False


def _rendering(event: dict[str, Any], about: System) -> None:
    rendered = event.pop("RenderingInfo", None)
    if type(rendered) is not dict:
        return
    message, _ = _split(rendered.pop("Message", None))
    about.message = message if type(message) is str else None
    words = rendered.pop("Keywords", None)
    if type(words) is dict:
        words = words.get("Keyword")
    about.words(words if type(words) is list else [words])
    for name, element in rendered.items():
        if not _namespace(name, element):
            about.rest[f"RenderingInfo.{name.removeprefix('@')}"] = as_text(element)


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    """Under its name, or where that stands twice with a number behind it."""
    # Providers may give two values the same name; neither may be lost.
    key, position = name, 1
    while key in data:
        position += 1
        key = f"{name}.{position}"
    data[key] = as_text(value)


def _data(part: Any, data: dict[str, Any], user: bool) -> None:
    """The values of EventData by name; those without one are param1, param2, ..."""
    if type(part) is list:
        for name_row in _named(part):
            _put(data, *name_row)
        return
    if type(part) is not dict:
        if part not in (None, ""):
            _put(data, "param1", part)
        return
    for key, value in part.items():
        name = key.removeprefix("@")
        if "xmlns" in name or value is None:
            continue
        if key in _WRAPPERS or key.endswith("_attributes"):
            for name_row, two in value.items() if type(value) is dict else ():
                if "xmlns" not in name_row:
                    # `<EventData Name="...">` names the kind of the data; it is no value called
                    # Name.
                    _put(data, "EventDataName" if name_row == "Name" else name_row, two)
        elif key == "Data":
            _unnamed(value, data)
        elif user and type(value) is dict and not (_is_text(value) or _is_attributes(value)):
            _data(value, data, True)
        elif user:
            _leaf(name, value, data)
        else:
            text, attributes = _split(value)
            _put(data, name, text if text is not None or not attributes else attributes)


def _leaf(name: str, value: Any, data: dict[str, Any]) -> None:
    """An element without elements: its text, and its attributes under its name."""
    text, attributes = _split(value)
    named = {key: part for key, part in attributes.items() if "xmlns" not in key}
    if text is not None or not named:
        _put(data, name, text)
    for key, part in named.items():
        _put(data, f"{name}.{key}", part)


def _is_attributes(value: Mapping[str, Any]) -> bool:
    """Whether there are only attributes, in a way that tells them from elements."""
    return bool(value) and all(key in _WRAPPERS or key.startswith("@") for key in value)


def _is_text(value: Mapping[str, Any]) -> bool:
    return any(word in value for word in TEXT)


def _unnamed(value: Any, data: dict[str, Any]) -> None:
    """`Data`: a list of `{"@Name": ..., "#text": ...}`, of plain values, or one of these."""
    if type(value) is dict and not any(part in value for part in ("@Name", "Name", "-Name")):
        text, attributes = _split(value)
        if type(attributes.get("Name")) is str:
            _put(data, attributes["Name"], text)
            return
        value = text if text is not None else attributes or None
    for name, part in _named(value if type(value) is list else [value]):
        _put(data, name, part)


def _named(values: list[Any]) -> Iterator[tuple[str, Any]]:
    unnamed = 0
    for value in values:
        text, attributes = _split(value)
        name = attributes.pop("Name", None)
        if type(name) is str and name:
            yield name, text if text is not None else attributes or ""
            continue
        unnamed += 1
        if value is not None:
            # Classic events have no names: their values are told apart by their place.
            yield f"param{unnamed}", text if text is not None else attributes


def _of_evtxecmd(fields: dict[str, Any], context: Context) -> Logged:
    """EvtxECmd: columns of its own, and the data as JSON in text."""
    about = System(context)
    about.event_id = fields.pop("EventId")
    about.provider = _taken(fields, "Provider")
    about.channel = _taken(fields, "Channel")
    about.computer = _taken(fields, "Computer")
    about.record_id = _taken(fields, "EventRecordId")
    about.time = fields.pop("TimeCreated", None)
    about.take("Level", fields.pop("Level", None), {})
    about.sid = _taken(fields, "UserId")
    about.pid, about.tid = whole(fields.pop("ProcessId", None)), whole(fields.pop("ThreadId", None))
    keywords = fields.pop("Keywords", None)
    about.words([keywords])
    payload = fields.pop("Payload")
    data: dict[str, Any] = {}
    try:
        # It is JSON inside of a JSON string, so the strict reader of the line has not seen it.
        parts = json.loads(payload) if type(payload) is str and len(payload) < 10**7 else payload
    except (ValueError, RecursionError):
        parts = None
    if type(parts) is dict:
        for part in DATA_PARTS:
            if parts.get(part) is not None:
                _data(parts[part], data, part != "EventData")
    elif payload not in (None, ""):
        fields["Payload"] = payload if type(payload) is str else kind(payload)
    about.rest |= {name: as_text(value) for name, value in fields.items() if value is not None}
    return logged(about, data)


def _taken(fields: dict[str, Any], name: str) -> str | None:
    value = as_text(fields.get(name))
    if type(value) is not str or not value.strip():
        return None
    del fields[name]
    return value.strip()
