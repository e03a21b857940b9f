"""What people and keys did, newest first: of ops.audit, and what waits for a driver to fold it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from api.services.reader import Reader, ReaderRow, cursor_of, parse_instant, reader_cursor
from infra.storage.checksums import Damaged, json_object

PAGE_ENTRIES = 100
_MOST_WAITING = 1_000
"""Most acts that wait and are shown; without a driver they are not folded, and grow."""
_PAGES = {"alert": "alerts", "rule": "rules", "case": "cases"}
_ELSEWHERE = {"suppress", "unsuppress", "suppression_end", "remove", "import"}
"""Acts whose target is no alert or rule with a page, or one that is gone with the act."""

_ENTRIES = """
SELECT "at" AS moment, who, act, target, detail, outcome FROM ops.audit
WHERE "at" >= $since AND ($who IS NULL OR who = $who) AND ($act IS NULL OR starts_with(act, $act))
  AND ($after IS NULL OR "at" < $after)
ORDER BY "at" DESC LIMIT $most
"""


def audit_page(
    reader: Reader, since: datetime, who: str | None, act: str | None, cursor: str | None
) -> tuple[list[ReaderRow], str | None]:
    """One page of the audit, and the cursor of the next."""
    question = {"since": f"{since:%Y-%m-%d}", "who": str(who), "act": str(act)}
    after = parse_instant(reader_cursor(cursor, question, 1)[0]) if cursor else None
    asked = {"since": since, "who": who, "act": act, "after": after, "most": PAGE_ENTRIES + 1}
    rows = reader.rows(_ENTRIES, asked, needs=("ops.audit",))
    page = rows[:PAGE_ENTRIES]
    last = page[-1] if len(rows) > PAGE_ENTRIES else None
    return page, cursor_of(question, last["moment"].isoformat()) if last else None


def waiting_acts(
    spool: Path, since: datetime, who: str | None, act: str | None
) -> tuple[list[dict[str, Any]], int]:
    """Acts that no driver has folded into ops.audit yet, newest first, and how many these are,
    also where not all are given; looking changes none."""
    rows = [
        row
        for row in _left(spool / "audit")
        if row["moment"] >= since
        and who in (None, row["who"])
        and (act is None or str(row["act"]).startswith(act))
    ]
    newest_first = sorted(rows, key=lambda row: row["moment"], reverse=True)
    return newest_first[:_MOST_WAITING], len(rows)


def in_words(entry: ReaderRow) -> ReaderRow:
    """An entry with `parts`, its detail as pairs of name and value, and `page`, where what it was
    done to is looked at; None where there is no such page."""
    text = entry["detail"] or ""
    try:
        known = json.loads(text)
    except ValueError:
        known = None
    if not isinstance(known, dict):
        return entry | {"parts": [("", text)] if text else [], "page": page_of(entry)}
    parts = [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in known.items()
        if value not in (None, "", [], {})
    ]
    return entry | {"parts": parts, "page": page_of(entry)}


def page_of(entry: ReaderRow) -> str | None:
    """The page of the alert, the rule or the case that an act was done to."""
    kind, _, act = str(entry["act"]).partition(".")
    if not entry["target"] or kind not in _PAGES or act in _ELSEWHERE:
        return None
    return f"/{_PAGES[kind]}/{quote(str(entry['target']), safe='')}"


def _left(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.glob("*.json"):
        # A driver may take it this moment, and says of one that is damaged where it set it aside.
        with suppress(OSError, Damaged, ValueError, KeyError, TypeError):
            row = json_object(file.read_text("utf-8", "replace"))
            moment = datetime.fromisoformat(row["at"])
            if moment.tzinfo is not None:
                names = ("who", "act", "target", "detail", "outcome")
                yield {"moment": moment} | {name: row.get(name) for name in names}
