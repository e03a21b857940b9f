"""Changes that are proposed over REST and done only once a person confirms them in the console.

No endpoint confirms: a text in a log may talk an assistant into proposing, never into deciding.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from alerts.delivery.suppress_request import require_end
from alerts.delivery.triage_request import (
    LONGEST_NOTE,
    TriageChange,
    state_after,
    triage_requests,
)
from api.observability.audit_log import audit_request, audited_act
from api.services.act_store import StateFolder, new_id
from api.services.alert_snapshot import AlertNow, alert_now, changed_since
from api.services.reader import Reader
from api.services.suppressions import Suppressions
from api.services.triage import Stale, Triage, touched_by_people
from api.wire import proposals as wire
from api.wire.suppressions import NewSuppression, SuppressionPatterns
from api.wire.triage import AlertChange, TriageStanding
from infra.config.settings import Settings
from infra.config.time_args import time_of
from infra.errors import HeadgateError, Usage

LASTS = timedelta(days=1)
MOST_OPEN = 500
MOST_OPEN_OF_ONE = 50
"""A caller that proposes without end must not bury what others proposed."""


class NoSuchProposal(Usage):
    """No proposal has that id, or it was decided or is over."""


class ProposalDesk:
    """Takes, lists and decides proposals; safe to share between threads and processes."""

    def __init__(
        self, reader: Reader, settings: Settings, triage: Triage, suppressions: Suppressions
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._triage = triage
        self._suppressions = suppressions
        self._files = StateFolder(settings, "proposals", LASTS)

    def propose(self, who: str, change: wire.NewProposal) -> wire.ProposedChange:
        """Keep a proposal; changes nothing. Raises what the change itself would be refused with.

        `Usage` where too many are open already.
        """
        if not change.why.strip():
            raise Usage("why: say why, for the person who decides")
        self._require_room(who)
        now = datetime.now(UTC)
        known: dict[str, Any] = {"etag": None, "before": None, "after": None, "hides": None}
        # Looked up before the lock: a suppression's preview reads the alerts of a month.
        if isinstance(change, wire.ProposedSuppression):
            change, known["hides"] = self._checked_suppression(change, now)
        else:
            change, known = self._checked_change(change, known)
        proposal = wire.ProposedChange(
            proposal_id=new_id(),
            proposed_by=who,
            proposed_at=now,
            expires_at=now + LASTS,
            change=change,
            **known,
        )
        with self._files.alone():
            # Again, now that nobody else can add one in between.
            self._require_room(who)
            self._audit("propose", who, proposal)
            self._files.put(proposal.proposal_id, proposal.model_dump(mode="json"))
        return proposal

    def waiting(self) -> list[wire.ProposedChange]:
        """Proposals that nobody has decided and that are not over, oldest first."""
        now = datetime.now(UTC)
        known = (_read(content) for content in self._files.all())
        waiting = [proposal for proposal in known if proposal and proposal.expires_at > now]
        return sorted(waiting, key=lambda proposal: (proposal.proposed_at, proposal.proposal_id))

    def alert_of(self, proposal: wire.ProposedChange) -> AlertNow | None:
        """The alert as it is now; None for a suppression."""
        if isinstance(proposal.change, wire.ProposedSuppression):
            return None
        return alert_now(self._reader, self._settings, proposal.change.alert_id)

    def change_since(self, proposal: wire.ProposedChange, alert: AlertNow) -> str | None:
        """Who did what to the alert since it was proposed, as a sentence; None for nothing."""
        if proposal.etag in (None, alert.etag):
            return None
        return changed_since(self._reader, alert, str(proposal.etag))

    def confirm(self, who: str, proposal_id: str, etag: str | None) -> wire.ProposedChange:
        """Do what was proposed, as `who`; the caller has checked that they may.

        `etag`: that of the alert as it was looked at. Raises `NoSuchProposal`, and `Stale` where
        people changed the alert since it was proposed or anything did since it was looked at.
        """
        proposal = self._taken(proposal_id)
        detail = _detail(proposal)
        try:
            # Taken and noted before it is done: a process that ends midway does nothing twice,
            # and the audit then tells of it.
            with audited_act(self._settings, "proposal.confirm", detail, who=who) as act:
                act.detail |= self._do(who, proposal, etag)
                act.outcome = "ok"
        except HeadgateError:
            # What was refused waits again: somebody may look anew, or reject it.
            self._files.put(proposal_id, proposal.model_dump(mode="json"))
            raise
        return proposal

    def reject(self, who: str, proposal_id: str, reason: str | None) -> wire.ProposedChange:
        """Put a proposal away; nothing is changed."""
        proposal = self._taken(proposal_id)
        self._audit("reject", who, proposal, reason=reason)
        return proposal

    def _require_room(self, who: str) -> None:
        waiting = self.waiting()
        mine = sum(other.proposed_by == who for other in waiting)
        if len(waiting) >= MOST_OPEN or mine >= MOST_OPEN_OF_ONE:
            raise Usage(
                f"{mine} proposals of yours wait ({len(waiting)} in all); at most "
                f"{MOST_OPEN_OF_ONE} of a caller and {MOST_OPEN} in all may: let a person "
                "decide some in the console first"
            )

    def _checked_suppression(
        self, change: wire.ProposedSuppression, now: datetime
    ) -> tuple[wire.ProposedSuppression, wire.ProposedHiding]:
        end = time_of("until", change.until, now)
        require_end(end, now)
        patterns = SuppressionPatterns(rule=change.rule, entity=change.entity, fields=change.fields)
        preview = self._suppressions.preview(patterns)
        hides = wire.ProposedHiding(alerts=preview.alerts, true_positives=preview.true_positives)
        # A span from now would end later than what the person saw, once they confirm it.
        return change.model_copy(update={"until": end.isoformat()}), hides

    def _checked_change(
        self, change: wire.ProposedVerdict | wire.ProposedNote, known: dict[str, Any]
    ) -> tuple[wire.ProposedVerdict | wire.ProposedNote, dict[str, Any]]:
        alert = alert_now(self._reader, self._settings, change.alert_id)
        wanted = _alert_change(change, None)
        fields = wanted.model_dump(exclude_unset=True, exclude={"note"})
        asked = triage_requests(
            alert.state, TriageChange.of(fields, wanted.note), alert.body.get("superseded_by")
        )
        if not asked:
            raise Usage(f"alert {alert.alert_id} is so already; there is nothing to change")
        known |= {
            "etag": alert.etag,
            "before": TriageStanding(**asdict(alert.state)),
            "after": TriageStanding(**asdict(state_after(alert.state, asked))),
        }
        return change.model_copy(update={"alert_id": alert.alert_id}), known

    def _do(self, who: str, proposal: wire.ProposedChange, etag: str | None) -> dict[str, Any]:
        """Through the functions that PATCH and POST call; returns what they made, by name."""
        change, by = proposal.change, proposal.proposed_by
        if isinstance(change, wire.ProposedSuppression):
            new = NewSuppression(
                rule=change.rule,
                entity=change.entity,
                fields=change.fields,
                until=change.until,
                reason=_signed(change.why, by, 2_000),
            )
            begun = self._suppressions.begin(who, new)
            return {"suppression_id": begun.suppression.suppression_id}
        alert = alert_now(self._reader, self._settings, change.alert_id)
        # The job's own revisions (a further count) overturn no judgement; people's do, also when
        # the job has made one behind them.
        moved = proposal.before != TriageStanding(**asdict(alert.state))
        if moved or touched_by_people(alert, str(proposal.etag)):
            since = changed_since(self._reader, alert, str(proposal.etag))
            raise Stale(
                f"alert {alert.alert_id} was changed since this was proposed: {since}. "
                "Reject it; who still wants it proposes it anew",
                alert.etag,
            )
        if not etag:
            raise Usage("etag: send the one of the alert that was looked at")
        changed = self._triage.change(who, alert.alert_id, _alert_change(change, by), etag)
        return {"act_id": changed.act_id}

    def _taken(self, proposal_id: str) -> wire.ProposedChange:
        proposal = _read(self._files.take(proposal_id))
        if proposal is None or proposal.expires_at <= datetime.now(UTC):
            raise NoSuchProposal(
                f"no proposal '{proposal_id}' waits: somebody decided it, or its day is over"
            )
        return proposal

    def _audit(self, act: str, who: str, proposal: wire.ProposedChange, **more: Any) -> None:
        audit_request(
            self._settings,
            f"proposal.{act}",
            "ok",
            who=who,
            target=proposal.proposal_id,
            detail=_detail(proposal) | more,
        )


def _alert_change(
    change: wire.ProposedVerdict | wire.ProposedNote, proposed_by: str | None
) -> AlertChange:
    """The change as PATCH takes it. `proposed_by`: who is named in its note; None: nobody yet."""
    text = change.text if isinstance(change, wire.ProposedNote) else change.why
    note = text if proposed_by is None else _signed(text, proposed_by, LONGEST_NOTE)
    if isinstance(change, wire.ProposedNote):
        return AlertChange(note=note)
    if change.close:
        return AlertChange(verdict=change.verdict, status="closed", note=note)
    return AlertChange(verdict=change.verdict, note=note)


def _signed(text: str, proposed_by: str, most: int) -> str:
    """A note that says where it came from; whoever reads it later must not take it for the
    person's own words."""
    mark = f" (proposed by {proposed_by})"
    return text.strip()[: most - len(mark)] + mark


def _detail(proposal: wire.ProposedChange) -> dict[str, Any]:
    """For the audit: which proposal, whose, and the whole change."""
    return {
        "proposal": proposal.proposal_id,
        "proposed_by": proposal.proposed_by,
        "change": proposal.change.model_dump(exclude_none=True),
    }


def _read(content: dict[str, Any] | None) -> wire.ProposedChange | None:
    """A kept proposal; None for one that this release does not understand."""
    try:
        return None if content is None else wire.ProposedChange.model_validate(content)
    except ValidationError:
        return None
