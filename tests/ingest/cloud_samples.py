"""What the tests of the cloud services share: their samples, and what must hold of rows."""

from __future__ import annotations

import json
from typing import Any

from ingest.parsing.ocsf_export import ocsf_object
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import SAMPLES

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 5, 0.5, 1e300, 2**62, "x", "", "::1%eth0", "99999999999999", "a@b"),
    *([], {}, [1], [{}], ["a", "b"], {"a": 1}, [{"id": 5}], "\u202e\x1b[31m", "2026-13-45T99:99Z"),
)
"""Values that a field may have although its product never writes them."""


def samples(name: str) -> list[bytes]:
    """The bundled records of a source."""
    text = (SAMPLES / "saas_cloud" / f"{name}.jsonl").read_bytes()
    return text.removesuffix(b"\n").split(b"\n")


def leaves(value: Any) -> set[str]:
    """The texts and numbers in a JSON value, as texts."""
    if isinstance(value, dict):
        return set().union(*map(leaves, value.values()))
    if isinstance(value, list):
        return set().union(*map(leaves, value))
    return set() if value in (None, "") else {str(value)}


def lost(raw: bytes, rows: list[dict[str, Any]]) -> set[str]:
    """What a JSON record says that none of its events does; times change their form."""
    told = leaves([ocsf_object(row) for row in rows])
    text = "\n".join(told).lower()
    gone = {one for one in leaves(json.loads(raw)) - told if one.lower() not in text}
    return {one for one in gone if not (one[:4].isdigit() and ("T" in one or ":" in one))}


def check(rows: list[dict[str, Any]]) -> None:
    """All rows are events that fit their class and the table."""
    for row in rows:
        assert row.get("dead_letter_reason") is None, row["dead_letter_reason"]
        assert faults(row) == []
        assert misfits(row) == []


def spoilt(document: Any, chance: Any) -> Any:
    """`document` with an odd value in some places."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        document = _with(document, chance.choice(list(_paths(document))), chance.choice(ODD))
    return document


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in pairs:
            found += _paths(one, (*path, key))
    return found or [()]


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return value
    changed = json.loads(json.dumps(value))
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return changed
