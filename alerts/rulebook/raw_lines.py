"""Raw log lines as the events of rules' tests: `{source: sshd, line: '...'}`.

A line goes through its source's own parser. Beside `source` and `line` a test may say whom the
event is about (`holder.`, `asset.`, `person.`). Times that name no zone are UTC, and a line
without a year is of the year before `RECEIVED_AT`, so a test means the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from alerts.rulepack.event_paths import ENRICHED
from alerts.rulepack.rule_pack import Rule
from infra.errors import Fatal, Usage
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record, lookup, sources

LINE = "line"
"""The key that marks a raw line: no column of silver.event has this name."""

RECEIVED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_SCOPES = (("default", ()),)


def is_raw_line(test: Any) -> bool:
    """Whether a test's event is a raw line."""
    return isinstance(test, Mapping) and LINE in test


def parsed_line(test: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of a raw line, at least one, as rows of silver.event.

    Raises `Fatal`, with the parser's reason, for a line that would be a dead letter, and for a
    test that is written wrongly.
    """
    about = {name: value for name, value in test.items() if name.partition(".")[0] in ENRICHED}
    others = sorted(map(str, test.keys() - about.keys() - {"source", LINE}))
    if others:
        raise Fatal(f"a raw line has a source and a line, not {', '.join(others)}")
    source, line = test.get("source"), test[LINE]
    if not isinstance(source, str) or not isinstance(line, str):
        raise Fatal("a raw line needs `source`, its name, and `line`, a text")
    # Before anything is parsed: an unknown source would otherwise look like a fault of the line.
    require_source(source)
    events = rows_of_line(source, line.encode())
    for event in events:
        if reason := event.get("dead_letter_reason"):
            raise Fatal(f"{source} cannot read the line: {reason}")
    return [event | with_nested_names(about) for event in events]


def require_source(name: str) -> None:
    """Raises `Fatal`, with the name that is nearest, where no source is called so."""
    try:
        lookup(name)
    except Usage:
        near = get_close_matches(name, sources(), 1)
        meant = f", perhaps '{near[0]}' is meant" if near else ""
        raise Fatal(f"no source '{name}'{meant}; 'headgate sources' lists them") from None


def rows_of_line(source: str, raw: bytes) -> list[dict[str, Any]]:
    """What the source's parser makes of a record; what it refuses has `dead_letter_reason`."""
    return rows_of_lines(source, {"test": raw})


def rows_of_lines(source: str, raws: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The same of several records by their ids, which may be parts of one event."""
    records = [Record(name, source, "live", RECEIVED_AT, raw) for name, raw in raws.items()]
    return event_rows(records, ParseSettings(scopes=_SCOPES))


def with_nested_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as mappings within mappings; a port that is a text becomes a number."""
    event: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        inner = event
        for step in above:
            inner = inner.setdefault(step, {})
        # `vary` makes texts, and ports are numbers in OCSF.
        inner[name] = value if name != "port" or not isinstance(value, str) else int(value)
    return event


def why_not(rule: Rule, test: Mapping[str, Any], must_match: bool) -> str:
    """What there is to say of a raw line that a rule does not match; may be empty.

    Where the rule never looks at such an event that is told of any test: it shows nothing.
    """
    events, source = parsed_line(test), test["source"]
    if rule.sources and source not in rule.sources:
        return f"the rule asks events of {', '.join(rule.sources)}, the line is of {source}"
    made = ", ".join(dict.fromkeys(f"{e['class_uid']} ({e['class_name']})" for e in events))
    if rule.classes and not any(event["class_uid"] in rule.classes for event in events):
        classes = ", ".join(map(str, rule.classes))
        return f"{source} makes an event of class {made} of the line, the rule asks {classes}"
    return f"did not match: {source} makes an event of class {made} of the line" * must_match
