"""A Sigma rule, with tests, drafted from raw records that it must match.

What is proposed is a beginning: fields that tell the kind of event, as the log source's own Sigma
names have them. What tells one event from its like (people, addresses, numbers of processes) stands
beside them as comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from alerts.compiler.compiler import compile_rules
from alerts.compiler.sigma_to_predicate import where_of
from alerts.rulebook.raw_lines import parsed_line
from alerts.rulebook.rule_tests import check_rules
from alerts.rulepack.derived_fields import inputs
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.log_source import LogSource, Unmapped
from alerts.rulepack.predicate import at, holds, present
from infra.errors import Usage
from infra.process.text_output import json_text

MOST_EVENTS = 20
"""Events that one rule is made from."""
_TELLING = (
    "metadata.event_code",
    "process.path",
    "process.cmd_line",
    "process.parent.path",
    "actor.process.path",
    "api.service.name",
    "api.operation",
    "finding_info.title",
    "activity_id",
    "status_id",
    "auth_method",
    "logon_type_id",
    "file.path",
    "module.file.path",
    "script.content",
    "reg_key.path",
    "reg_value.path",
    "reg_value.data",
    "win_service.name",
    "job.name",
    "query.hostname",
    "query.type",
    "http_request.http_method",
    "http_request.url.path",
    "connection_info.protocol_name",
    "dst_endpoint.port",
    "disposition_id",
    "firewall_rule.name",
    "status_detail",
)
"""Columns that say what kind of thing happened, the most telling first."""
_LAST = "message"
"""Asked where an event has none of these."""
_PERSONAL = (
    "user.name",
    "actor.user.name",
    "src_endpoint.ip",
    "dst_endpoint.ip",
    "device.hostname",
    "http_request.user_agent",
    _LAST,
)
"""Columns that tell one event from its like: shown, not asked."""
_MOST = 5
"""Fields of a proposal, and values of one field."""
_FEW = 3
"""Fields of a proposal, when columns count of which the log source has no name."""
_MOST_BESIDE = 25
"""Fields that are shown as comments."""
_LONG = 200
"""Characters from which on a text is asked by its beginning alone."""
_PLAIN_SYSLOG = (None, "linux", "syslog")
_PATHS = ("process.path", "parent.path", "file.path")


@dataclass(frozen=True)
class RawTest:
    """A raw record that the rule must match: its source, and its text."""

    source: str
    line: str


@dataclass(frozen=True)
class DraftOptions:
    """What a person may say of the new rule; empty: proposed."""

    name: str
    title: str = ""
    level: str = "medium"


@dataclass(frozen=True)
class _Item:
    """A field with its values as a selection asks them."""

    key: str
    values: tuple[Any, ...]
    column: str

    @property
    def rank(self) -> int | None:
        """How telling it is, 0 the most; None: not."""
        first = inputs(self.column)[0]
        return _TELLING.index(first) if first in _TELLING else None

    def text(self) -> str:
        """The lines of it, to be indented."""
        if len(self.values) == 1:
            return f"{self.key}: {json_text(self.values[0])}"
        return "\n".join([f"{self.key}:", *(f"  - {json_text(value)}" for value in self.values)])


def drafted(tests: Sequence[RawTest], options: DraftOptions) -> str:
    """The text of a rule's file, whose tests pass.

    Raises `Fatal` with the parser's reason for a record that cannot be read, `Usage` where no
    field tells anything of all of them.
    """
    # Of a record with several events the first; the rule's test takes any of them.
    events = [parsed_line({"source": t.source, "line": t.line})[0] for t in tests]
    key, source = _log_source(events)
    items = list(_items(source, events))
    telling = _telling(source, items)
    identity = str(uuid4())

    def text_of(chosen: Sequence[_Item]) -> str:
        beside = [item for item in items if item not in chosen][:_MOST_BESIDE]
        head = _head(options, identity, events[0], key)
        return "\n".join([*head, *_detection(chosen, beside), *_tests(options, tests), ""])

    failure = _failure(text_of(telling)) if telling else ""
    if telling and not failure:
        return text_of(telling)
    # A field that the matcher reads otherwise than it stands in the event is left out.
    fitting = [item for item in telling if not _failure(text_of([item]))]
    if not fitting:
        why = f": {failure}" if failure else ""
        raise Usage(f"no field of these events makes a rule that matches all of them{why}")
    return text_of(fitting)


def tests_of_events(
    ask: Callable[..., list[dict[str, Any]]], uids: Sequence[str], since: datetime
) -> list[RawTest]:
    """The raw records of events of the lake, in the order in which the events are named.

    `since`: none of them is older, as far as the caller knows. Raises `Usage` for one that is not
    there, whose record is gone, or is no text.
    """
    events = ask(
        "SELECT event_uid, source, record_ids FROM silver.event "
        "WHERE time >= $since AND list_contains($uids, event_uid)",
        {"uids": list(uids), "since": since},
        needs=("silver.event",),
    )
    by_uid = {str(event["event_uid"]): event for event in events}
    missing = [uid for uid in uids if uid not in by_uid]
    if missing:
        raise Usage(f"no event {', '.join(missing)} in silver.event")
    wanted = [record for event in events for record in event["record_ids"]]
    records = ask(
        "SELECT record_id, raw FROM bronze.record WHERE list_contains($ids, record_id)",
        {"ids": wanted},
        needs=("bronze.record",),
    )
    raw = {str(record["record_id"]): bytes(record["raw"]) for record in records}
    return list(dict.fromkeys(_raw_test(by_uid[uid], raw) for uid in uids))


def _raw_test(event: dict[str, Any], raw: dict[str, bytes]) -> RawTest:
    uid, parts = event["event_uid"], event["record_ids"]
    if any(part not in raw for part in parts):
        raise Usage(
            f"the raw record of event {uid} is not kept any more; begin with a line of it "
            "(headgate rules new --source)"
        )
    try:
        return RawTest(event["source"], "\n".join(raw[part].decode("utf-8") for part in parts))
    except UnicodeDecodeError:
        raise Usage(f"the raw record of event {uid} is no text; a test needs one") from None


def _log_source(events: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, str], LogSource]:
    """The narrowest log source that holds all events, as a rule names it, and what it means."""
    fitting = [
        # OCSF's classes know no product: the last resort.
        ("ocsf" not in key, _narrowness(key, source, events), key, source)
        for key, source in mapping().logsources.items()
        if all(_holds(source, event) for event in events)
    ]
    _, _, named, source = max(fitting, key=lambda candidate: candidate[:2])
    words = dict(zip(("category", "product", "service"), named, strict=True))
    return {name: word for name, word in words.items() if word}, source


def _holds(source: LogSource, event: Mapping[str, Any]) -> bool:
    if source.classes and event["class_uid"] not in source.classes:
        return False
    if source.sources and event["source"] not in source.sources:
        return False
    where = where_of(source)
    return where is None or holds(where, event)


def _narrowness(
    key: Sequence[str | None], source: LogSource, events: Sequence[Mapping[str, Any]]
) -> tuple[int, int]:
    """How closely a log source fits, above all by what marks a program, then by its names."""
    narrow = 4 * bool(source.where)
    # A group of many sources, or of classes, says less than one of them.
    narrow += bool(source.sources) + 2 * (len(source.sources) == 1)
    narrow += bool(source.classes) + (len(source.classes) == 1)
    # Products' log sources count in what reaches them by syslog; a plain line is none of theirs.
    narrow += 2 * (events[0]["source"] == "syslog" and tuple(key) == _PLAIN_SYSLOG)
    return narrow, sum(_is_named(source, item) for item in _items(source, events))


def _is_named(source: LogSource, item: _Item) -> bool:
    name = item.key.partition("|")[0]
    return name in source.fields or name in source.by_event


def _telling(source: LogSource, items: Sequence[_Item]) -> list[_Item]:
    """The most telling items, those first that the log source has a name for."""
    telling = sorted(
        (item for item in items if item.rank is not None and any(item.values)),
        key=lambda item: (not _is_named(source, item), item.rank),
    )
    chosen: list[_Item] = []
    for item in telling:
        enough = len(chosen) >= (_MOST if _is_named(source, item) else _FEW)
        # Some columns repeat each other, under two names.
        again = any(
            isinstance(v, str) and item.values == c.values for c in chosen for v in c.values
        )
        if not enough and not again:
            chosen.append(item)
    return chosen or [item for item in items if item.column == _LAST]


def _items(source: LogSource, events: Sequence[Mapping[str, Any]]) -> Iterator[_Item]:
    """What all events have under names of the log source, each column once."""
    conditions = {path for where in source.where for path in where}
    taken = set(conditions)
    rest = _rest(events[0]) if source.rest else {}
    for name in (*source.fields, *source.by_event, *_TELLING, *_PERSONAL, *rest):
        placed = [_value(source, name, event) for event in events]
        columns = {column for column, _ in placed}
        values = tuple(dict.fromkeys(value for _, value in placed))
        # So many values tell one event from its like, and a column that is taken would be asked
        # twice.
        if len(columns) > 1 or None in values or len(values) > _MOST or columns & taken:
            continue
        taken |= columns
        yield _item(name, columns.pop(), values)


def _value(source: LogSource, name: str, event: Mapping[str, Any]) -> tuple[str, Any]:
    """The column in which an event has a field, and its value; None where it has none."""
    code = (event.get("metadata") or {}).get("event_code")
    try:
        places = source.places(name, None if code is None else frozenset({str(code)}))
    except Unmapped:
        return "", None
    for place in places:
        for path in place.paths:
            value = next(iter(present(at(event, path))), None)
            if isinstance(value, str | int | float) and value != "":
                return path, value
    return "", None


def _rest(event: Mapping[str, Any]) -> dict[str, Any]:
    """What the parser has no column for: dotted names to values."""
    flat: dict[str, Any] = {}
    waiting = [("", json.loads(event.get("unmapped") or "{}"))]
    while waiting:
        above, value = waiting.pop(0)
        if isinstance(value, dict):
            waiting += [(f"{above}.{name}" if above else name, v) for name, v in value.items()]
        else:
            flat[above] = value
    return flat


def _item(name: str, column: str, values: tuple[Any, ...]) -> _Item:
    if all(isinstance(value, str) for value in values):
        # Folders differ from machine to machine: Sigma's rules ask for the end of a path.
        if column.endswith(_PATHS) and all(re.search(r"[\\/][^\\/]+$", v) for v in values):
            ends = (re.search(r"[\\/][^\\/]+$", value) for value in values)
            texts = tuple(dict.fromkeys(sigma_escaped(end[0]) for end in ends if end))
            return _Item(f"{name}|endswith", texts, column)
        if any(len(value) > _LONG for value in values):
            texts = tuple(dict.fromkeys(sigma_escaped(value[:_LONG]) for value in values))
            return _Item(f"{name}|startswith", texts, column)
        # Sigma's rules write event ids as numbers.
        if column == "metadata.event_code" and all(value.isdecimal() for value in values):
            return _Item(name, tuple(map(int, values)), column)
        return _Item(name, tuple(map(sigma_escaped, values)), column)
    return _Item(name, values, column)


def sigma_escaped(text: str) -> str:
    """A text as Sigma reads it literally: a backslash only needs one before it where it would
    take the meaning of what follows."""
    return re.sub(r"\\(?=[\\*?])|[*?]", lambda mark: f"\\{mark[0]}", text)


def _failure(text: str) -> str:
    """Why the rule's own tests do not pass; empty when they do."""
    # The compiler reads files, so that what it says here is what it will say of the rule.
    with TemporaryDirectory(prefix="headgate-draft-") as folder:
        path = Path(folder) / "draft.yml"
        path.write_text(text, "utf-8")
        compiled = compile_rules([path])
        if compiled.refused:
            return compiled.refused[0].reason
        return next((o.detail for o in check_rules(compiled) if not o.passed), "")


def _head(
    options: DraftOptions, identity: str, event: Mapping[str, Any], key: Mapping[str, str]
) -> Iterator[str]:
    words = (event.get("class_name"), event.get("activity_name"), event.get("status"))
    title = options.title or f"{': '.join(str(w) for w in words if w)} ({event['source']})"
    yield f"title: {json_text(title)}"
    yield f"name: {options.name}"
    yield f"id: {identity}"
    yield "status: experimental"
    yield f"description: {json_text('Say what it finds, and why that matters.')}"
    yield f"date: {date.today().isoformat()}"
    yield "logsource:"
    for name, word in key.items():
        yield f"  {name}: {word}"


def _detection(chosen: Sequence[_Item], beside: Sequence[_Item]) -> Iterator[str]:
    yield "detection:"
    yield "  selection:"
    for item in chosen:
        yield from (f"    {line}" for line in item.text().split("\n"))
    if beside:
        yield "    # The events have these too:"
    for item in beside:
        yield from (f"    # {line}" for line in item.text().split("\n"))
    yield "  condition: selection"


def _tests(options: DraftOptions, tests: Sequence[RawTest]) -> Iterator[str]:
    yield "falsepositives:"
    yield "  - Say what looks like this and is harmless."
    yield f"level: {options.level}"
    yield "headgate:"
    yield "  tests:"
    yield "    match:"
    for test in tests:
        yield f"      - source: {json_text(test.source)}"
        yield f"        line: {json_text(test.line)}"
