"""How the tests of web and name servers' logs look into events."""

from __future__ import annotations

from typing import Any

from ingest.parsing.ocsf_export import ocsf_object
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import rows


def events(source: str, raw: str | bytes, **more: Any) -> list[dict[str, Any]]:
    """The events of one record, each checked against its class; no dead letter among them."""
    data = raw.encode() if isinstance(raw, str) else raw
    found = rows(source, data, **more)
    assert found == rows(source, data, **more)
    for row in found:
        assert row.get("dead_letter_reason") is None, row["dead_letter_reason"]
        assert not faults(row), faults(row)
        assert not misfits(row), misfits(row)
    return [ocsf_object(row) for row in found]


def only(source: str, raw: str | bytes, **more: Any) -> dict[str, Any]:
    """The one event of a record."""
    found = events(source, raw, **more)
    assert len(found) == 1, found
    return found[0]


def at(event: dict[str, Any], path: str) -> Any:
    """What stands at `a.b.c`; None where there is nothing."""
    found: Any = event
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def check(source: str, raw: str | bytes, expected: dict[str, Any], **more: Any) -> None:
    """That the event of a record has what is expected of it."""
    event = only(source, raw, **more)
    found = {path: at(event, path) for path in expected}
    wrong = {path: found[path] for path in expected if found[path] != expected[path]}
    assert not wrong, f"{wrong} where { ({path: expected[path] for path in wrong}) } was expected"
