"""Fields of a source that OCSF has no place for, and which of them are new.

What a product adds or renames ends up in `unmapped`, so no event is lost to it and the
schema does not grow. Its keys are named in ops.drift: at the first look at a source all
there are (the baseline), from then on those not seen before. Whoever invents keys fills
no table: of a source at most `MOST_FIELDS` are named, and a place with very many
different keys below it counts as one field, `place.*`.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from infra.streaming.outbox import put_row
from ingest.quality.silence_rules import OURS

if TYPE_CHECKING:
    import duckdb

MOST_FIELDS = 2_000
OTHERS, NONE = "(others)", "(none)"
"""Rows of ops.drift that are no field: beyond the most; a source without any when first seen."""

OPEN = 50
"""A place with more different keys than this holds data by its keys, such as names of tags."""
_DEPTH = 3
NAME = 120
"""Levels looked into, and characters kept of a key."""

_REMEMBERED = 10 * MOST_FIELDS
"""Different fields of a source that are counted in one run; what is beyond them is others."""

_MOST_ROWS = 2_000_000
"""Rows looked at in one run; of more, a sample."""
_AT_ONCE = 5_000

_COUNT = """
SELECT source, count(*) AS rows, min(received_at) AS first, min(event_uid) AS example
FROM silver.event
WHERE received_at >= $since AND received_at < $until AND dead_letter_reason IS NULL
  AND source NOT IN (SELECT unnest($ours))
GROUP BY source ORDER BY source
"""
_ROWS = """
SELECT source, received_at, event_uid, unmapped
FROM silver.event
WHERE received_at >= $since AND received_at < $until AND dead_letter_reason IS NULL
  AND unmapped IS NOT NULL AND source NOT IN (SELECT unnest($ours))
  AND hash(event_uid) % $every = 0
"""

_Known = Mapping[str, frozenset[str]]


@dataclass
class Field:
    """A field of a source: when it was first seen, in how many rows, and in which for example."""

    source: str
    field: str
    first_seen: datetime
    rows: int
    event_uid: str
    baseline: bool = False

    def row(self) -> dict[str, Any]:
        """The field as a row of ops.drift."""
        return {
            "source": self.source,
            "field": self.field,
            "first_seen": self.first_seen.isoformat(),
            "rows": self.rows,
            "event_uid": self.event_uid,
            "baseline": self.baseline,
        }


@dataclass
class _Seen:
    """What a run counts of one source."""

    fields: dict[str, Field] = field(default_factory=dict)
    others: Field | None = None

    def add(self, source: str, path: str, at: datetime, uid: str) -> None:
        fields = self.fields.get(path)
        # What a run holds in memory is bounded as well, before anything is named.
        if fields is None and len(self.fields) >= _REMEMBERED:
            fields = self.others = self.others or Field(source, OTHERS, at, 0, uid)
        elif fields is None:
            fields = self.fields[path] = Field(source, path, at, 0, uid)
        fields.rows += 1
        if at < fields.first_seen:
            fields.first_seen, fields.event_uid = at, uid


def learn(
    connection: duckdb.DuckDBPyConnection, baselines: _Known, since: datetime, until: datetime
) -> list[Field]:
    """The fields of events received in `[since, until)` that are not in `baselines`.

    Those of a source that is not in `baselines` are its baseline.
    """
    span = {"since": since, "until": until, "ours": list(OURS)}
    counted = connection.execute(_COUNT, span).fetchall()
    seen: dict[str, _Seen] = defaultdict(_Seen)
    # Every nth row and not the first ones: those may all be of one kind.
    every = 1 + sum(rows for _, rows, _, _ in counted) // _MOST_ROWS
    cursor = connection.execute(_ROWS, {**span, "every": every})
    while batch := cursor.fetchmany(_AT_ONCE):
        for source, position, uid, text in batch:
            for path in _paths(text):
                seen[source].add(source, path, position, uid)
    new: list[Field] = []
    for source, _, first, example in counted:
        of_source = list(_new(source, seen[source], baselines.get(source)))
        if not of_source and source not in baselines:
            of_source = [Field(source, NONE, first, 0, example, baseline=True)]
        new += of_source
    return new


def _paths(text: str) -> set[str]:
    """The fields in the JSON object that `unmapped` is."""
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return set()
    return set(_below("", decoded, 1)) if isinstance(decoded, dict) else set()


def _below(above: str, value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{above}.{key[:NAME]}" if above else key[:NAME]
            yield path
            if depth < _DEPTH:
                yield from _below(path, inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _below(above, inner, depth)


def _new(source: str, seen: _Seen, baseline: frozenset[str] | None) -> Iterator[Field]:
    """What a source has that is not known of it, the most frequent first, bounded."""
    had = baseline or frozenset()
    folded = _folded(source, seen.fields, had)
    fresh = sorted(
        (field for field in folded.values() if field.field not in had),
        key=lambda field: (-field.rows, field.field),
    )
    # A sender may make up names without end; the rest are counted as one.
    room = max(0, MOST_FIELDS - len(had - {OTHERS, NONE}))
    left = fresh[room:] + ([seen.others] if seen.others else [])
    named = fresh[:room]
    if left and OTHERS not in had:
        rows = sum(field.rows for field in left)
        named.append(Field(source, OTHERS, left[0].first_seen, rows, left[0].event_uid))
    for drifted in named:
        drifted.baseline = baseline is None
        yield drifted


def _folded(source: str, fields: Mapping[str, Field], had: Iterable[str]) -> dict[str, Field]:
    """The fields, those below a place with very many keys as one."""
    keys: dict[str, set[str]] = defaultdict(set)
    for path in (*fields, *had):
        # A key that holds a dot itself counts as a place and a key: it is named the same all the
        # same.
        parts = path.split(".")
        for depth in range(1, len(parts)):
            keys[".".join(parts[:depth])].add(parts[depth])
    # Once a place counts as one field it stays so, or its keys would be new again.
    wide = {place for place, names in keys.items() if len(names) > OPEN or "*" in names}
    all_fields: dict[str, Field] = {}
    for path, seen_field in fields.items():
        parts = path.split(".")
        places = (".".join(parts[:depth]) for depth in range(1, len(parts)))
        place = next((each for each in places if each in wide), None)
        name = path if place is None else f"{place}.*"
        if name not in all_fields:
            all_fields[name] = Field(source, name, seen_field.first_seen, 0, seen_field.event_uid)
        into = all_fields[name]
        into.rows += seen_field.rows
        if seen_field.first_seen < into.first_seen:
            into.first_seen, into.event_uid = seen_field.first_seen, seen_field.event_uid
    return all_fields


def known_fields(connection: duckdb.DuckDBPyConnection, spool: Path) -> _Known:
    """What ops.drift names, and what waits to be folded into it."""
    sets: dict[str, set[str]] = defaultdict(set)
    # The spool first: what is folded meanwhile is then in the table.
    for file in sorted(spool.glob("**/*.json")):
        try:
            row = json.loads(file.read_bytes())
        except FileNotFoundError:
            continue
        sets[row["source"]].add(row["field"])
    for source, name in connection.execute("SELECT source, field FROM ops.drift").fetchall():
        sets[source].add(name)
    return {source: frozenset(names) for source, names in sets.items()}


def write_fields(spool: Path, fields: Iterable[Field]) -> None:
    """Leave rows for ops.drift; the same field again replaces what still waits."""
    for drifted in fields:
        names = json.dumps([drifted.source, drifted.field])
        digest = hashlib.sha256(names.encode()).hexdigest()[:32]
        put_row(spool, digest, drifted.row())
