"""A case as its acts make it: rows of ops.case_act, folded in the order in which people acted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Row = Mapping[str, Any]
TITLE, MERGE = "title", "merge"
_NEVER = datetime.min.replace(tzinfo=UTC)
ACTS = ("open", TITLE, "assign", "close", "reopen", "note", "link", "unlink", MERGE)


@dataclass(frozen=True)
class CaseNote:
    """What somebody wrote, by itself or with an act."""

    text: str
    who: str
    at: datetime
    act: str


@dataclass
class Case:
    """Alerts under one title, with where people stand. `status`: open, closed or merged."""

    case_id: str
    title: str
    opened_at: datetime
    opened_by: str
    status: str = "open"
    outcome: str | None = None
    assignee: str | None = None
    changed_at: datetime = _NEVER
    changed_by: str = ""
    alerts: list[str] = field(default_factory=list)
    """Ids, in the order in which they were linked."""
    ever: list[str] = field(default_factory=list)
    """Ids of these and of all that were taken out again: what was noted may be about any."""
    notes: list[CaseNote] = field(default_factory=list)
    merged_into: str | None = None
    merged_from: list[str] = field(default_factory=list)
    acts: int = 0

    @property
    def etag(self) -> str:
        """Differs once somebody did something to it."""
        return f'"{self.acts}"'

    @property
    def next_instant(self) -> datetime:
        """When the next act is done: behind the newest, also where another clock is ahead."""
        return max(datetime.now(UTC), self.changed_at + timedelta(microseconds=1))


def fold_cases(rows: Iterable[Row]) -> dict[str, Case]:
    """Cases by id. A row that is there twice counts once; an act on no case is passed over."""
    unique = {str(row["act_id"]): row for row in rows}
    cases: dict[str, Case] = {}
    for row in sorted(unique.values(), key=lambda row: (instant_of(row), str(row["act_id"]))):
        if row["act"] == "open":
            cases[row["case_id"]] = Case(
                row["case_id"], str(row["value"] or ""), instant_of(row), str(row["who"])
            )
        if (case := cases.get(row["case_id"])) is not None:
            _apply(cases, case, row)
    return cases


def instant_of(row: Row) -> datetime:
    """When an act was done; rows of waiting files have a text."""
    instant = row["at"]
    return instant if isinstance(instant, datetime) else datetime.fromisoformat(instant)


def _apply(cases: dict[str, Case], case: Case, row: Row) -> None:
    act, value, instant = row["act"], row["value"], instant_of(row)
    ids = [str(name) for name in row["alert_ids"] or ()]
    case.acts, case.changed_at, case.changed_by = case.acts + 1, instant, str(row["who"])
    if act in ("open", "link"):
        case.alerts = _with(case.alerts, ids)
        case.ever = _with(case.ever, ids)
    elif act == "unlink":
        gone = set(ids)
        case.alerts = [name for name in case.alerts if name not in gone]
    elif act == TITLE:
        case.title = str(value)
    elif act == "assign":
        case.assignee = value
    elif act == "close":
        case.status, case.outcome = "closed", value
    elif act == "reopen":
        case.status, case.outcome = "open", None
    if row["comment"]:
        case.notes.append(CaseNote(str(row["comment"]), str(row["who"]), instant, str(act)))
    target = cases.get(str(value)) if act == MERGE else None
    if target is not None and target is not case:
        _merge(case, target, row)


def _with(known: list[str], more: list[str]) -> list[str]:
    """These ids and behind them those that are new, each once: an incident may have thousands."""
    return list(dict.fromkeys([*known, *more]))


def _merge(case: Case, target: Case, row: Row) -> None:
    case.status, case.merged_into = "merged", target.case_id
    target.merged_from.append(case.case_id)
    target.alerts = _with(target.alerts, case.alerts)
    target.ever = _with(target.ever, case.ever)
    target.notes = sorted([*target.notes, *case.notes], key=lambda note: note.at)
    target.acts, target.changed_at = target.acts + 1, instant_of(row)
    target.changed_by = str(row["who"])
