"""What a person wants of an alert, as requests to job `alert`; and the requests that undo it.

Pure rules over the body of an alert's newest revision and the requests that wait behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from alerts.domain.verdict import verdict_of
from infra.errors import Fatal, Usage

TriageStatus = Literal["open", "closed"]
TRIAGE_ACTIONS = ("close", "reopen", "assign", "verdict", "note")
LONGEST_NAME = 200
LONGEST_NOTE = 10_000


class ChangeRefused(Fatal):
    """An alert cannot be changed so, whoever asks."""


@dataclass(frozen=True)
class TriageState:
    """Where people stand with an alert."""

    status: TriageStatus = "open"
    assignee: str | None = None
    verdict: str | None = None


@dataclass(frozen=True)
class TriageChange:
    """What is wanted. `fields` has those of `TriageState` that are to change, None to clear."""

    fields: Mapping[str, str | None]
    note: str | None = None

    @classmethod
    def of(cls, fields: Mapping[str, str | None], note: str | None = None) -> TriageChange:
        """Checks what a person wrote; raises `Usage` that names the field."""
        checked: dict[str, str | None] = {}
        for name, value in fields.items():
            if name == "status":
                if value not in ("open", "closed"):
                    raise Usage(f"status '{value}': one of open, closed")
                checked[name] = value
            elif name == "assignee":
                checked[name] = _assignee(value)
            elif name == "verdict":
                checked[name] = None if value is None else verdict_of(value)
            else:
                raise Usage(f"an alert has no '{name}' to change: status, assignee, verdict, note")
        text = (note or "").strip() or None
        if text is not None and len(text) > LONGEST_NOTE:
            raise Usage(f"note: has {len(text)} characters, at most {LONGEST_NOTE}")
        if not checked and text is None:
            raise Usage("nothing to change: give status, assignee, verdict or note")
        return cls(checked, text)


@dataclass(frozen=True)
class TriageRequest:
    """One request, as a row of gold.alert_action has it."""

    action: str
    value: str | None = None
    comment: str | None = None


def triage_state(body: Mapping[str, Any], waiting: Iterable[Mapping[str, Any]] = ()) -> TriageState:
    """The state by the newest revision, and by the requests that job `alert` has still to take."""
    state = TriageState(
        "closed" if body.get("state") == "closed" else "open",
        body.get("assignee"),
        body.get("verdict"),
    )
    for request in waiting:
        state = _after(state, request)
    return state


def still_waiting(
    body: Mapping[str, Any], requests: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Requests about an alert that its newest revision does not show yet, oldest first, each once.

    The revision names the instant up to which it took what was asked (`changed_at`).
    """
    upto = _instant(body.get("changed_at"))
    behind = {
        str(request["action_id"]): request
        for request in requests
        if request["action"] in TRIAGE_ACTIONS and (upto is None or _when(request) > upto)
    }
    return sorted(behind.values(), key=lambda request: (_when(request), request["action_id"]))


def triage_requests(
    state: TriageState, change: TriageChange, superseded_by: str | None = None
) -> list[TriageRequest]:
    """The requests that make the change, fewest; none where all is so already and no note is left.

    Raises `ChangeRefused` where the alert cannot become so.
    """
    requests: list[TriageRequest] = []
    wanted = change.fields
    status = wanted.get("status", state.status)
    if "assignee" in wanted and wanted["assignee"] != state.assignee:
        requests.append(TriageRequest("assign", wanted["assignee"]))
    judged = "verdict" in wanted and wanted["verdict"] != state.verdict
    if status == "open" and state.status == "closed":
        if superseded_by is not None:
            raise ChangeRefused(f"its findings belong to alert {superseded_by} now; change that")
        requests.append(TriageRequest("reopen"))
        # Reopening ends the verdict, so one that is wanted is asked for behind it.
        judged = wanted.get("verdict") is not None
    if status == "closed" and state.status == "open":
        # A close without a value leaves the verdict as it is.
        if judged and wanted["verdict"] is None:
            requests.append(TriageRequest("verdict"))
        requests.append(TriageRequest("close", wanted["verdict"] if judged else None))
    elif judged:
        requests.append(TriageRequest("verdict", wanted["verdict"]))
    if change.note is None:
        return requests
    if not requests:
        return [TriageRequest("note", comment=change.note)]
    # With the last request: each would otherwise show the same note.
    return [*requests[:-1], replace(requests[-1], comment=change.note)]


def undoing(before: TriageState, after: TriageState, now: TriageState) -> TriageChange | None:
    """What takes an alert back from `after` to `before`; None where others changed it since."""
    # Undoing would overwrite what somebody else did since.
    if now != after:
        return None
    fields: dict[str, str | None] = {
        name: getattr(before, name)
        for name in ("status", "assignee", "verdict")
        if getattr(before, name) != getattr(after, name)
    }
    return TriageChange(fields)


def in_words(request: Mapping[str, Any]) -> str:
    """A request as a sentence's middle: 'closed it as benign'."""
    action, value = request["action"], request.get("value")
    sentence = {
        "close": f"closed it as {value}" if value else "closed it",
        "reopen": "reopened it",
        "assign": f"assigned it to {value}" if value else "took its assignee away",
        "verdict": f"judged it {value}" if value else "took its verdict back",
        "note": "wrote a note",
    }.get(str(action), f"asked to {action} it")
    comment = request.get("comment")
    return f"{sentence} ({comment})" if comment else sentence


def state_after(state: TriageState, asked: Sequence[TriageRequest]) -> TriageState:
    """Where people stand once these requests are taken."""
    for request in asked:
        state = _after(state, {"action": request.action, "value": request.value})
    return state


def _after(state: TriageState, request: Mapping[str, Any]) -> TriageState:
    action, value = request["action"], request.get("value")
    if action == "close":
        # A close without a verdict leaves the one that is there, as job `alert` does.
        return replace(state, status="closed", verdict=value or state.verdict)
    # As job `alert` does: whoever reopens an alert doubts the verdict.
    if action == "reopen":
        return replace(state, status="open", verdict=None)
    if action == "assign":
        return replace(state, assignee=value)
    if action == "verdict":
        return replace(state, verdict=value)
    return state


def _assignee(value: str | None) -> str | None:
    name = (value or "").strip()
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise Usage(f"assignee: a name of at most {LONGEST_NAME} printable characters")
    return name or None


def _instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None


def _when(request: Mapping[str, Any]) -> datetime:
    asked = request["at"]
    return asked if isinstance(asked, datetime) else datetime.fromisoformat(asked)
