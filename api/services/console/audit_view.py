"""What people and keys did, newest first."""

from __future__ import annotations

from datetime import datetime

from api.services.reader import Reader, ReaderRow, cursor_of, parse_instant, reader_cursor

PAGE_ENTRIES = 100

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
