"""Windows events as XML: `<Event xmlns="http://schemas.microsoft.com/win/2004/08/events/event">`.

As Event Viewer, `wevtutil`, Windows Event Forwarding and Sysmon for Linux write them:
https://learn.microsoft.com/windows/win32/wes/eventschema-schema .
A document type is refused: whoever needs one has entities in mind.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from xml.parsers import expat
from zoneinfo import ZoneInfo

from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import not_utf8
from ingest.parsing.timestamps import like_iso, stamp_iso
from ingest.sources.windows.build import event_of
from ingest.sources.windows.record import Logged
from ingest.sources.windows.system_part import System, logged

_UTC = ZoneInfo("UTC")
_DEPTH = 32
_START = re.compile(r"<Event(?=[\s>])")
_END = re.compile(r"</Event\s{0,9}>")
BETWEEN = re.compile(r"(?:\s|<\?xml[^>]{0,200}\?>|</?Events(?:\s[^<>]{0,500})?>|\ufeff)*")
REFERENCE = re.compile(r"&#(x[0-9a-fA-F]{1,6}|\d{1,7});")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_CUT = frozenset({3, 4, 5})
"""Expat's errors of a text that ends too early: no element, invalid or unclosed token."""
STANDS_IN = 0xF0000
"""Private-use characters stand in for control characters, which XML cannot have and
attackers' text may: they are put back once the XML is read."""
STOOD_IN = re.compile("[\U000f0000-\U000f001f\U000ffffe\U000fffff]")


class _Node:
    """An element: its name without a prefix, its attributes, its text and its children."""

    __slots__ = ("attributes", "children", "name", "text")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.text = ""
        self.children: list[_Node] = []

    def child(self, name: str) -> _Node | None:
        """The first child of that name."""
        return next((child_row for child_row in self.children if child_row.name == name), None)


def _tree(text: str, cut: bool = False) -> _Node:
    """The element that `text` is, or if it may be `cut` short, begins. Raises `Unreadable`."""
    # Expat and not ElementTree: it can refuse a document type before any entity is read.
    parser = expat.ParserCreate()
    parser.buffer_text = True
    root = _Node("", {})
    path = [root]

    def start(name: str, attributes: dict[str, str]) -> None:
        # Events nest three or four deep; a stack of thousands would exhaust Python's.
        if len(path) > _DEPTH:
            raise Unreadable(f"XML nested deeper than {_DEPTH} levels")
        kept = {
            key.rpartition(":")[2]: _restored(attribute) for key, attribute in attributes.items()
        }
        node = _Node(name.rpartition(":")[2], kept)
        path[-1].children.append(node)
        path.append(node)

    def end(name: str) -> None:
        node = path.pop()
        node.text = _restored(node.text)

    def characters(piece: str) -> None:
        path[-1].text += piece

    def refuse(*_: object) -> None:
        raise Unreadable("a document type in the XML, which no event has")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(_without_controls(text), True)
    except expat.ExpatError as error:
        # What came whole before the cut is read; other faults of the XML are not excused.
        if cut and error.code in _CUT and root.children:
            return root.children[0]
        raise Unreadable(
            f"not valid XML: {expat.ErrorString(error.code)} at line {error.lineno}, "
            f"column {error.offset}"
        ) from None
    return root.children[0]


def _without_controls(text: str) -> str:
    def reference(match: re.Match[str]) -> str:
        number = match[1]
        code = int(number[1:], 16) if number[0] == "x" else int(number)
        if code < 32 and code not in (9, 10, 13):
            return chr(STANDS_IN + code)
        # No character at all: one such reference must not make the whole event unreadable.
        if code in (0xFFFE, 0xFFFF) or 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            return "\ufffd"
        return match[0]

    if "&#" in text:
        text = REFERENCE.sub(reference, text)
    return CONTROL.sub(lambda match: chr(STANDS_IN + ord(match[0])), text)


def _restored(text: str) -> str:
    if not STOOD_IN.search(text):
        return text
    return STOOD_IN.sub(lambda match: chr(ord(match[0]) - STANDS_IN), text)


def decoded(raw: bytes) -> str:
    """The text of `raw`: UTF-8, or UTF-16 with its mark. Raises `Unreadable`."""
    try:
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return raw.decode("utf-16")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise Unreadable("not valid UTF-16") from None
        raise Unreadable(not_utf8(raw)) from None


def event_elements(text: str) -> list[str | Unreadable]:
    """Each `<Event>` of a text, and in place of what lies between, why it cannot be read."""
    piece_list: list[str | Unreadable] = []
    end = 0
    while start := _START.search(text, end):
        # No regex over both: without an end each start would be searched to the last byte.
        last = _END.search(text, start.end())
        if last is None:
            break
        if not BETWEEN.fullmatch(text, end, start.start()):
            piece_list.append(_stray(text, end, start.start()))
        piece_list.append(text[start.start() : last.end()])
        end = last.end()
    if not BETWEEN.fullmatch(text, end):
        piece_list.append(_stray(text, end, len(text)))
    return piece_list


def _stray(text: str, start: int, end: int) -> Unreadable:
    piece = text[start:end].strip()
    if "<!DOCTYPE" in piece or "<!ENTITY" in piece:
        return Unreadable("a document type in the XML, which no event has")
    if piece.startswith("<Event"):
        return Unreadable(f"not valid XML: an event is cut short at character {start}")
    return Unreadable(f"not a Windows event in XML: '{piece[:40]}' at character {start}")


def event_of_xml(text: str, context: Context, cut: bool = False) -> Event:
    """The OCSF event of one `<Event>`. Raises `Unreadable`.

    With `cut` also of one without its end, as syslog with its limits leaves them: what
    came is read, and `truncated` is in unmapped.
    """
    return event_of(logged_of_xml(text, context, cut))


def logged_of_xml(text: str, context: Context, cut: bool = False) -> Logged:
    """The event that one `<Event>` describes. Raises `Unreadable`."""
    node = _tree(text, cut)
    system = node.child("System")
    if node.name != "Event" or system is None:
        raise Unreadable(f"not a Windows event: <{node.name}> without <System>")
    about = System(context)
    for child in system.children:
        about.take(child.name, child.text.strip() or None, child.attributes)
    data: dict[str, Any] = {}
    for part in node.children:
        if part.name == "EventData":
            _event_data(part, data)
        elif part.name in ("UserData", "DebugData", "ProcessingErrorData", "BinaryEventData"):
            _user_data(part, data)
        elif part.name == "RenderingInfo":
            _rendering(part, about)
        elif part is not system:
            about.rest[part.name] = _plain(part)
    if cut and not _END.search(text):
        about.rest["truncated"] = True
    return logged(about, data)


def _event_data(part: _Node, data: dict[str, Any]) -> None:
    """`<Data Name="x">`; those without a name are counted: param1, param2, ..."""
    if part.attributes.get("Name"):
        data["EventDataName"] = part.attributes["Name"]
    unnamed = 0
    for child in part.children:
        name = child.attributes.get("Name")
        if child.name != "Data":
            name = child.name
        elif not name:
            unnamed += 1
            name = f"param{unnamed}"
        _put(data, name or child.name, _plain(child) if child.children else child.text)


def _user_data(part: _Node, data: dict[str, Any]) -> None:
    """The leaves of whatever the provider wrote, by their names."""
    for child in part.children:
        if child.children:
            _user_data(child, data)
        else:
            _put(data, child.name, child.text.strip())
            for key, value in child.attributes.items():
                # `xmlns:auto-ns2` declares a namespace in what Windows writes; its prefix is off by
                # now.
                if not key.startswith("xmlns") and key != "auto-ns2":
                    _put(data, f"{child.name}.{key}", value)


def _rendering(part: _Node, about: System) -> None:
    for child in part.children:
        if child.name == "Message":
            about.message = child.text.strip() or None
        elif child.name == "Keywords":
            about.words([word.text for word in child.children])
        elif child.text.strip():
            about.rest[f"RenderingInfo.{child.name}"] = child.text.strip()


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    """Under its name, or where that stands twice with a number behind it."""
    # Providers may give two values the same name; neither may be lost.
    key, position = name, 1
    while key in data:
        position += 1
        key = f"{name}.{position}"
    data[key] = value


def _plain(node: _Node) -> Any:
    if not node.children:
        return node.text.strip() or node.attributes or None
    merged: dict[str, Any] = dict(node.attributes)
    for child in node.children:
        _put(merged, child.attributes.get("Name") or child.name, _plain(child))
    return merged


SYSTEM_TIME = re.compile(r"""(<TimeCreated\s[^<>]{0,100}?SystemTime\s*=\s*)(["'])([^"'<>]*)\2""")
UTC_TIME = re.compile(
    r"""(<Data\s[^<>]{0,100}?Name\s*=\s*["']UtcTime["'][^<>]{0,50}>)([^<]*)(?=<)"""
)


def restamped(text: str, when: datetime) -> str:
    """The one event of `text` at another time. Raises `Unreadable`."""
    if len([piece for piece in event_elements(text) if isinstance(piece, str)]) != 1:
        raise Unreadable("not exactly one <Event>, whose time could be replaced")
    match = SYSTEM_TIME.search(text)
    new = like_iso(match[3], when, _UTC) if match else None
    if match is None or new is None:
        raise Unreadable("no TimeCreated with a SystemTime in the event")
    text = text[: match.start(3)] + new + text[match.end(3) :]
    other = UTC_TIME.search(text)
    if other and stamp_iso(other[2], _UTC, when).quality != "received":
        text = (
            text[: other.start(2)] + (like_iso(other[2], when, _UTC) or "") + text[other.end(2) :]
        )
    return text
