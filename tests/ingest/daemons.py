"""How the tests of server programs say what a line must become."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from ingest.parsing.ocsf_export import ocsf_object
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import rows

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)

Expected = dict[str, Any]


def events(source: str, *raws: str, now: datetime = NOW, **more: Any) -> list[dict[str, Any]]:
    """The rows of records, each checked against its class and the table, and for sameness."""
    found = rows(source, *(raw.encode() for raw in raws), now=now, **more)
    for row in found:
        if row.get("dead_letter_reason") is None:
            assert faults(row) == [], row
            assert misfits(row) == [], row
    assert rows(source, *(raw.encode() for raw in raws), now=now, **more) == found
    return found


def one(source: str, raw: str, **more: Any) -> dict[str, Any]:
    """The one row of a record that can be read."""
    found = events(source, raw, **more)
    assert len(found) == 1, found
    assert found[0].get("dead_letter_reason") is None, found[0]
    return found[0]


def told(source: str, raw: str, **more: Any) -> dict[str, Any]:
    """The OCSF object of a record's one event, its `unmapped` among it."""
    return ocsf_object(one(source, raw, **more))


def at(found: dict[str, Any], path: str) -> Any:
    """What stands at `a.b.c` of an object; None for nothing."""
    value: Any = found
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def check(source: str, raw: str, expected: Expected) -> None:
    """That a line becomes what is expected, at each of the paths."""
    found = told(source, raw)
    actual = {path: at(found, path) for path in expected}
    assert actual == expected, json.dumps(found, indent=1)


def brief(row: dict[str, Any]) -> tuple[int, int | None, str | None, str | None]:
    """Type, status, source address and user of a row."""
    source, user = row.get("src_endpoint") or {}, row.get("user") or {}
    return row["type_uid"], row.get("status_id"), source.get("ip"), user.get("name")
