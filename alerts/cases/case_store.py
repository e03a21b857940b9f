"""Acts on cases: left as files that the driver folds into ops.case_act, and read from both."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from alerts.cases.case import ACTS, Case, fold_cases
from alerts.domain.short_ids import id_begun_by
from infra.config.settings import Settings
from infra.errors import Retryable, Usage
from infra.streaming.outbox import put_row

Ask = Callable[..., list[dict[str, Any]]]
"""`ask(sql, params, needs=tables)` gives rows as dictionaries."""
OUTBOX = "case_act"
PREFIX = "case-"
SHORTEST = 3
_THERE = "SELECT DISTINCT alert_id FROM gold.alert WHERE list_contains($ids, alert_id)"


class NoSuchCase(Usage):
    """No case has that id."""


def all_cases(ask: Ask, settings: Settings) -> dict[str, Case]:
    """Every case by id, with what waits for the driver."""
    # The files before the table: what is folded meanwhile is then seen twice and never missed.
    waiting = _waiting(settings)
    rows = ask("SELECT * FROM ops.case_act", {}, needs=("ops.case_act",))
    return fold_cases([*waiting, *rows])


def cases_of_tenants(ask: Ask, cases: dict[str, Case]) -> dict[str, Case]:
    """Of cases those in which no other alert ever was than those that `ask` sees.

    What people noted may be about one that was taken out. One that never had any is nobody's.
    """
    there = alerts_there(ask, {alert_id for case in cases.values() for alert_id in case.ever})
    own = {name: case for name, case in cases.items() if case.ever and there.issuperset(case.ever)}
    for case in own.values():
        # Ids of others are not told either.
        case.merged_into = case.merged_into if case.merged_into in own else None
        case.merged_from = [name for name in case.merged_from if name in own]
    return own


def alerts_there(ask: Ask, ids: Iterable[str]) -> set[str]:
    """Those of these alerts that `ask` sees."""
    rows = ask(_THERE, {"ids": sorted(ids)}, needs=("gold.alert",))
    return {str(row["alert_id"]) for row in rows}


def case_called(cases: dict[str, Case], name: str) -> Case:
    """The case of an id, or of its first characters; raises `NoSuchCase`, `Usage` for several."""
    if name in cases:
        return cases[name]
    case_id = id_begun_by(
        "case", PREFIX + name.removeprefix(PREFIX), cases, least=len(PREFIX) + SHORTEST
    )
    if case_id is None:
        raise NoSuchCase(f"no case '{name}'; GET /api/v1/cases lists them")
    return cases[case_id]


def new_case_id() -> str:
    """An id that people can say to each other."""
    return f"{PREFIX}{secrets.token_hex(5)}"


def leave_act(
    settings: Settings,
    case_id: str,
    act: str,
    *,
    who: str,
    at: datetime,
    value: str | None = None,
    comment: str | None = None,
    alert_ids: Sequence[str] = (),
) -> dict[str, Any]:
    """Leave an act, a row of ops.case_act, and note it in the audit.

    Raises `Retryable` when it cannot be written: it is not done then.
    """
    if act not in ACTS:
        raise Usage(f"act: '{act}' is none of {', '.join(ACTS)}")
    row = {
        "act_id": uuid.uuid4().hex,
        "case_id": case_id,
        "act": act,
        "value": value,
        "comment": comment,
        "alert_ids": list(alert_ids),
        "who": who,
        "at": at.isoformat(),
    }
    spool = settings.home.absolute() / "spool"
    detail = {name: row[name] for name in ("value", "comment", "alert_ids") if row[name]}
    audited = {"at": row["at"], "who": who, "act": f"case.{act}", "target": case_id}
    try:
        # The audit first: an act that leaves no trace is not done.
        put_row(
            spool / "audit",
            f"case-{row['act_id']}",
            audited | {"outcome": "ok", "detail": json.dumps(detail)},
        )
        put_row(spool / OUTBOX, str(row["act_id"]), row)
    except OSError as error:
        raise Retryable(f"{spool}: cannot be written ({error.strerror})") from error
    return row


def _waiting(settings: Settings) -> list[dict[str, Any]]:
    folder = settings.home.absolute() / "spool" / OUTBOX
    rows = []
    # A round of the driver moves files into a folder of its own, and removes it once written.
    for file in [*folder.glob("*.json"), *folder.glob("round-*/*.json")]:
        with suppress(OSError, ValueError):
            row = json.loads(file.read_bytes())
            if isinstance(row, dict):
                rows.append(row)
    return rows
