"""Cases: read, and changed by acts that can be seen at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from alerts.cases.case import Case
from alerts.cases.case_store import (
    alerts_there,
    all_cases,
    case_called,
    cases_of_tenants,
    leave_act,
    new_case_id,
)
from alerts.cases.evidence import Ask, Bundle, Tell, write_bundle
from alerts.cases.incident_alerts import with_alerts_of_incidents
from alerts.cases.stix_bundle import NO_SIGHTING, stix_bundle
from alerts.delivery.triage_request import ChangeRefused
from alerts.domain.alert_body import readable_body, require_whole
from alerts.domain.short_ids import several_ids
from alerts.lifecycle.risk_score import INCIDENT
from api.observability.audit_log import audit_request
from api.services.act_store import StateFolder
from api.services.alert_index import INDEX
from api.services.alert_snapshot import whole_alert_id
from api.services.reader import Reader
from api.services.triage import ANY_REVISION, ME, Stale
from api.wire import cases as wire
from api.wire.evidence import EvidenceKind, NewEvidence
from infra.config.settings import Settings
from infra.errors import NoSuch, Usage

_SHARED = """
SELECT alert_id, revision, title, "count", event_time, window_start, window_end, body
FROM gold.alert_current WHERE list_contains($ids, alert_id)
"""


_OF_INCIDENT = f"""
SELECT alert_id, rule_id, title FROM {INDEX} WHERE alert_id = $id OR incident_id = $id
ORDER BY window_start, alert_id
"""


@dataclass(frozen=True)
class EvidenceSubject:
    """What a bundle is of."""

    kind: EvidenceKind
    name: str
    """The id of the case, of the incident, or of the first alert."""
    title: str
    alerts: Sequence[str]
    case: Case | None = None

    @property
    def etag(self) -> str | None:
        """Of a case."""
        return self.case.etag if self.case else None


class Cases:
    """Changes cases for callers by name; safe to share between threads and processes.

    Of who is limited to tenants only the cases are there in which no other alert than theirs ever
    was (`alerts.cases.case_store.cases_of_tenants`).
    """

    def __init__(self, reader: Reader, settings: Settings, acts: Reader | None = None) -> None:
        """`acts`: where acts on cases are read, if `reader` may not (`Reader.tenants`)."""
        self._reader = reader
        self._acts = acts or reader
        self._settings = settings
        self._lock = StateFolder(settings, "cases", timedelta(days=1))

    def listed(self, status: str | None = None, alert_id: str | None = None) -> list[Case]:
        """Cases, that changed last first."""
        cases = self._cases().values()
        wanted = [
            case
            for case in cases
            if (status is None or case.status == status)
            and (alert_id is None or alert_id in case.alerts)
        ]
        return sorted(wanted, key=lambda case: case.changed_at, reverse=True)

    def get(self, name: str) -> Case:
        """A case by its id or the first characters of it; raises `NoSuchCase`."""
        return case_called(self._cases(), name)

    def open(self, who: str, new: wire.NewCase) -> Case:
        """Open a case."""
        ids = self._ids(new.alerts)
        if self._reader.tenants is not None and not ids:
            raise Usage("alerts: name at least one: a case is of the tenant whose alerts it has")
        case_id = new_case_id()
        with self._lock.alone():
            leave_act(self._settings, case_id, "open", who=who, at=datetime.now(UTC),
                      value=new.title, comment=new.note, alert_ids=ids)  # fmt: skip
            if new.assignee:
                self._act(self.get(case_id), who, "assign", value=_person(new.assignee, who))
        return self.get(case_id)

    def change(self, who: str, name: str, asked: wire.CaseChange, if_match: str) -> Case:
        """Change a case; raises `Stale` unless it is still what `if_match` names."""
        given = asked.model_dump(exclude_unset=True)
        if asked.outcome is not None and asked.status != "closed":
            raise Usage("outcome: say status closed with it")
        with self._changing(name, if_match) as case:
            acts: list[tuple[str, str | None]] = []
            if asked.title is not None and asked.title != case.title:
                acts.append(("title", asked.title))
            if "assignee" in given and _person(asked.assignee, who) != case.assignee:
                acts.append(("assign", _person(asked.assignee, who)))
            if asked.status == "closed":
                acts.append(("close", asked.outcome))
            elif asked.status == "open" and case.status == "closed":
                acts.append(("reopen", None))
            if asked.note and not acts:
                acts.append(("note", None))
            for number, (act, value) in enumerate(acts):
                # The note stands with the last one, which is what it is mostly about.
                note = asked.note if number == len(acts) - 1 else None
                case = self._act(case, who, act, value=value, comment=note)
        return case

    def note(self, who: str, name: str, text: str) -> Case:
        """Note something; it overwrites nothing, so any state of the case will do."""
        with self._changing(name, ANY_REVISION) as case:
            return self._act(case, who, "note", comment=text)

    def link(self, who: str, name: str, alerts: Sequence[str]) -> Case:
        """Link alerts; those that are linked already stay so."""
        # First what the path names: a case that there is not is told before an alert of the body.
        self.get(name)
        ids = self._ids(alerts)
        with self._changing(name, ANY_REVISION) as case:
            fresh = [alert_id for alert_id in ids if alert_id not in case.alerts]
            return self._act(case, who, "link", alert_ids=fresh) if fresh else case

    def unlink(self, who: str, name: str, alert_id: str) -> Case:
        """Take an alert out."""
        with self._changing(name, ANY_REVISION) as case:
            ids = [known for known in case.alerts if known.startswith(alert_id)]
            if not ids:
                raise NoSuch(f"alert '{alert_id}' is not one of {case.case_id}")
            if len(ids) > 1:
                raise several_ids("alert", alert_id, ids)
            return self._act(case, who, "unlink", alert_ids=ids)

    def merge(self, who: str, name: str, into: str, if_match: str = ANY_REVISION) -> Case:
        """Let another case take this one in; returns that one. Raises `Stale` as `change` does."""
        with self._changing(name, if_match) as case:
            target = self.get(into)
            if target.case_id == case.case_id:
                raise Usage("into: a case cannot be merged into itself")
            if target.status == "merged":
                raise ChangeRefused(f"{_merged(target)} itself; choose another")
            # The act's instant follows from this one (`next_instant`), and has to be after both
            # histories.
            case.changed_at = max(case.changed_at, target.changed_at)
            self._act(case, who, "merge", value=target.case_id)
            return self.get(target.case_id)

    @property
    def rows(self) -> Ask:
        """What answers questions about all that may be seen."""
        return self._reader.rows

    def evidence_subject(self, asked: NewEvidence) -> EvidenceSubject:
        """What evidence is asked of; raises `Usage` where that is nothing, or several things."""
        if [asked.case is None, asked.incident is None, not asked.alerts].count(False) != 1:
            raise Usage("say one of case, incident and alerts: what the evidence is of")
        if asked.case is not None:
            case = self.get(asked.case)
            if not case.alerts:
                raise Usage(f"{case.case_id} has no alerts; link some, then there is evidence")
            return EvidenceSubject("case", case.case_id, case.title, case.alerts, case)
        if asked.incident is not None:
            incident_id = whole_alert_id(self._reader, asked.incident)
            rows = self._reader.rows(_OF_INCIDENT, {"id": incident_id}, needs=(INDEX,))
            own = next((row for row in rows if row["alert_id"] == incident_id), None)
            if own is None or own["rule_id"] != INCIDENT:
                raise Usage(f"incident: alert {incident_id} is no incident; name it under alerts")
            ids = [str(row["alert_id"]) for row in rows]
            return EvidenceSubject("incident", incident_id, own["title"], ids)
        ids = self._ids(asked.alerts)
        return EvidenceSubject("alerts", ids[0], "", ids)

    def write_evidence(
        self, who: str, subject: EvidenceSubject, file: Path, ask: Ask, tell: Tell
    ) -> Bundle:
        """Write a bundle, and note its digest in the audit; `ask`: as `rows`."""
        case = msgspec.to_builtins(subject.case) if subject.case else None
        bundle = write_bundle(ask, self._settings, subject.alerts, file, who=who, case=case,
                              limited=self._reader.tenants is not None, tell=tell)  # fmt: skip
        detail = {"digest": bundle.digest, "alerts": len(subject.alerts),
                  "rows": dict(bundle.counts)}  # fmt: skip
        audit_request(self._settings, "evidence.export", "ok", who=who, target=subject.name,
                      detail=detail)  # fmt: skip
        return bundle

    def stix(self, who: str, name: str) -> dict[str, Any]:
        """A case as a STIX 2.1 bundle; noted in the audit."""
        case = self.get(name)
        return self._stix(who, case.case_id, case.alerts, case)

    def alert_stix(self, who: str, name: str) -> dict[str, Any]:
        """An alert, or an incident with its alerts, as a STIX 2.1 bundle; noted in the audit.
        Raises `Usage` for one that its verdict makes no sighting."""
        alert_id = whole_alert_id(self._reader, name)
        alert_ids = with_alerts_of_incidents(self._reader.rows, [alert_id])
        return self._stix(who, alert_id, alert_ids, None)

    def _stix(
        self, who: str, target: str, alert_ids: Sequence[str], case: Case | None
    ) -> dict[str, Any]:
        rows = self._reader.rows(_SHARED, {"ids": list(alert_ids)}, needs=("gold.alert_current",))
        # A body of an earlier release may lack what the row has.
        bodies = [row | readable_body(row["body"]) for row in rows]
        for body in bodies:
            require_whole(body, body["alert_id"], body["revision"])
            if body["alert_id"] == target and body.get("verdict") in NO_SIGHTING:
                raise Usage(f"alert {target} was judged {body['verdict']}: it is no sighting")
        bundle, left_out = stix_bundle(bodies, self._settings.intelligence.stix, case)
        detail = {"bundle": bundle["id"], "alerts": len(bodies) - left_out}
        audit_request(self._settings, "evidence.stix", "ok", who=who, target=target, detail=detail)
        return bundle

    @contextmanager
    def _changing(self, name: str, if_match: str) -> Iterator[Case]:
        # Look and act under one lock: another process could otherwise act in between.
        with self._lock.alone():
            case = self.get(name)
            wanted = if_match.strip().removeprefix("W/")
            if wanted not in (ANY_REVISION, case.etag):
                changed = (
                    f"{case.case_id} is no longer what you looked at: {case.changed_by} changed it "
                    f"at {case.changed_at:%Y-%m-%dT%H:%M:%SZ}."
                )
                raise Stale(
                    f"{changed} It is {case.etag} now; look again",
                    case.etag,
                    f"{changed} Look at it as it is now; what still holds, send again",
                )
            if case.status == "merged":
                raise ChangeRefused(f"{_merged(case)}; {_instead(case)}")
            yield case

    def _act(
        self,
        case: Case,
        who: str,
        act: str,
        *,
        value: str | None = None,
        comment: str | None = None,
        alert_ids: Sequence[str] = (),
    ) -> Case:
        leave_act(self._settings, case.case_id, act, who=who, at=case.next_instant, value=value,
                  comment=comment, alert_ids=alert_ids)  # fmt: skip
        return self.get(case.case_id)

    def _cases(self) -> dict[str, Case]:
        """Every case that may be seen, by id."""
        cases = all_cases(self._acts.rows, self._settings)
        if self._reader.tenants is None:
            return cases
        return cases_of_tenants(self._reader.rows, cases)

    def _ids(self, names: Sequence[str]) -> list[str]:
        # One question for all whose id is whole, which most are.
        there = alerts_there(self._reader.rows, names) if len(names) > 1 else set()
        whole = (name if name in there else whole_alert_id(self._reader, name) for name in names)
        return list(dict.fromkeys(whole))


def case_item(case: Case) -> wire.CaseItem:
    """A case in short, as the API answers it."""
    return wire.CaseItem(**_fields(case, wire.CaseItem))


def case_detail(case: Case) -> wire.CaseDetail:
    """A case as the API answers it."""
    return wire.CaseDetail(**_fields(case, wire.CaseDetail))


def _fields(case: Case, model: type[wire.CaseItem]) -> dict[str, object]:
    row = asdict(case) | {"alert_count": len(case.alerts)}
    return {name: row[name] for name in model.model_fields}


def _merged(case: Case) -> str:
    # Who is limited to tenants is not told the id of a case of others.
    into = case.merged_into or "another case"
    return f"{case.case_id} was merged into {into}"


def _instead(case: Case) -> str:
    return "work on that one" if case.merged_into else "nothing is added to it any more"


def _person(name: str | None, who: str) -> str | None:
    return who if name == ME else name or None
