"""What lies in the tables behind alerts: their findings, events, DHCP lines and batches.

It is asked for several alerts together, so that each table is gone through once for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from alerts.backtest.rerun import FINDINGS_NEED, FINDINGS_SQL, Ask, RerunRow
from alerts.domain.alert_body import readable_body
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Correlation, Described, PackStore, RulePack
from infra.config.settings import Settings
from infra.errors import Fatal
from ingest.tables import EVENT

MOST_EVENTS = 20
"""Events of an alert that are looked at, the oldest."""
LEASE_REACH = timedelta(days=7)
"""How long before a lease its lines are sought."""

_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

# Names of files that a batch wrote; what compaction or a rewrite wrote names no batch any more.
_BATCH = re.compile(r"([a-z]+)-(\d+)-[0-9a-f]{16}-[^/]*$")


def shifted(instant: datetime, by: timedelta) -> datetime:
    """An instant moved on or back, not beyond Python's own first and last: events are kept up to
    the year 9999."""
    try:
        return instant + by
    except OverflowError:
        return _LAST if by > timedelta() else _FIRST


@dataclass(frozen=True)
class Subject:
    """An alert to explain: its newest revision."""

    row: RerunRow
    body: RerunRow

    @cached_property
    def span(self) -> tuple[datetime, datetime]:
        """First and newest event, those of the evidence included."""
        instants = (
            str(evidence_row.get("time") or "") for evidence_row in self.body.get("evidence") or ()
        )
        times = [datetime.fromisoformat(time) for time in instants if time]
        # Evidence is a sample; the alert's own window may reach further.
        times += [self.row["window_start"], self.row["window_end"]]
        return min(times), max(times)

    def covers(self, instant: datetime) -> bool:
        """Whether an instant lies in that span."""
        since, until = self.span
        return since <= instant <= until

    @cached_property
    def proof(self) -> list[str]:
        """Uids of the DHCP lines that its attribution names."""
        return [str(uid) for uid in (self.body.get("attribution") or {}).get("evidence") or ()]

    @cached_property
    def proof_since(self) -> datetime:
        """From when on these are sought."""
        start = (self.body.get("attribution") or {}).get("lease_start")
        return shifted(datetime.fromisoformat(start) if start else self.span[0], -LEASE_REACH)

    @cached_property
    def evidence(self) -> list[str]:
        """Event uids that the alert shows."""
        return _uids(self.body)


@dataclass(frozen=True)
class Provenance:
    """What lies in the tables behind an alert, from which all is told."""

    subject: Subject
    pack: RulePack | None
    """The one that ran, not the one in force: the rule may have been changed since."""
    rule: Described | None
    findings: list[RerunRow]
    """Those that it shows, and for a correlation those that it counts."""
    rows: list[RerunRow]
    """The events as they are now in silver.event, oldest first."""
    proof: list[RerunRow]
    """The DHCP lines that its attribution rests on."""
    batches: list[RerunRow]
    """The batches it came from, by the ledger."""

    @property
    def events(self) -> list[RerunRow]:
        """Those of `rows` that are looked at."""
        return self.rows[:MOST_EVENTS]


def provenance_of(
    ask: Ask,
    settings: Settings,
    alert_ids: Sequence[str],
    *,
    limited: bool = False,
    proof: bool = True,
) -> list[Provenance]:
    """What lies behind these alerts, the oldest first; of one that is not there nothing.

    The tables are gone through once for all of them: each question opens all files of its time,
    which is most of what it costs. `limited`: as `explain` has it. `proof`: with the DHCP lines;
    who reads their events anyway gives them by `proof_lines`.
    """
    subjects = _subjects(ask, alert_ids)
    if not subjects:
        return []
    store = PackStore(store_folder(settings))
    packs = {name: _pack(store, name) for name in {each.row["pack"] for each in subjects}}
    rules = [
        pack.described(each.row["rule_id"]) if (pack := packs[each.row["pack"]]) else None
        for each in subjects
    ]
    findings = _findings(ask, subjects, rules)
    events = _events(ask, subjects, findings)
    none: list[list[RerunRow]] = [[] for _ in subjects]
    proofs = _proofs(ask, subjects) if proof else none
    batches = none if limited else _batches(ask, settings, subjects, events)
    return [
        Provenance(
            subject, packs[subject.row["pack"]], rules[n], findings[n], events[n], proofs[n],
            batches[n],
        )
        for n, subject in enumerate(subjects)
    ]  # fmt: skip


def _subjects(ask: Ask, alert_ids: Sequence[str]) -> list[Subject]:
    rows = ask(
        "SELECT * FROM gold.alert_current WHERE list_contains($ids, alert_id)"
        " ORDER BY window_start, alert_id",
        {"ids": list(alert_ids)},
        needs=("gold.alert", "gold.alert_current"),
    )
    return [Subject(row, readable_body(row["body"])) for row in rows]


def _pack(store: PackStore, pack_hash: str | None) -> RulePack | None:
    """None also where the row names none, as one that other hands wrote."""
    try:
        return store.get(pack_hash) if pack_hash else None
    except Fatal:
        return None


def _findings(
    ask: Ask, subjects: Sequence[Subject], rules: Sequence[Described | None]
) -> list[list[RerunRow]]:
    asked = [
        {each.row["rule_id"], *(rule.rules if isinstance(rule, Correlation) else ())}
        for each, rule in zip(subjects, rules, strict=True)
    ]
    since, until = _spanning(subjects)
    rows = ask(
        f"SELECT * FROM ({FINDINGS_SQL}) WHERE list_contains($shown, event_uid)"
        " OR list_has_any(list_transform(evidence, shown -> shown.event_uid), $shown)"
        " ORDER BY event_time, finding_id",
        {
            "rules": sorted(set().union(*asked)),
            "since": since,
            "until": until,
            "shown": sorted({uid for each in subjects for uid in each.evidence}),
        },
        needs=FINDINGS_NEED,
        # The time of an attribution is that of its finding.
        within={
            "gold.finding": ("event_time", since, until),
            "gold.attribution": ("event_time", since, until),
        },
    )
    named = [(row, {row["event_uid"], *_uids(row)}) for row in rows]
    return [
        [
            row
            for row, uids in named
            if row["rule_id"] in wanted
            and each.covers(row["event_time"])
            and not uids.isdisjoint(each.evidence)
        ]
        for each, wanted in zip(subjects, asked, strict=True)
    ]


def _spanning(subjects: Sequence[Subject]) -> tuple[datetime, datetime]:
    """First and newest event of all of them."""
    spans = [each.span for each in subjects]
    return min(since for since, _ in spans), max(until for _, until in spans)


def _uids(row: Mapping[str, Any]) -> list[str]:
    return [str(each["event_uid"]) for each in row.get("evidence") or ()]


def _events(
    ask: Ask, subjects: Sequence[Subject], findings: Sequence[Sequence[RerunRow]]
) -> list[list[RerunRow]]:
    wanted = [shown_uids(each, rows) for each, rows in zip(subjects, findings, strict=True)]
    since, until = _spanning(subjects)
    rows = ask(
        "SELECT * FROM silver.event WHERE list_contains($uids, event_uid) "
        "AND time >= $since AND time <= $until ORDER BY time, event_uid",
        {"uids": sorted(set().union(*wanted)), "since": since, "until": until},
        needs=("silver.event",),
        within={"silver.event": ("time", since, until)},
    )
    return [
        [row for row in rows if row["event_uid"] in uids and each.covers(row["time"])]
        for each, uids in zip(subjects, wanted, strict=True)
    ]


def shown_uids(one: Subject, findings: Iterable[RerunRow]) -> set[str]:
    """Events that an alert shows, and those that its findings are of."""
    return {*one.evidence, *(f["event_uid"] for f in findings if f["kind"] == "event")}


def _proofs(ask: Ask, subjects: Sequence[Subject]) -> list[list[RerunRow]]:
    named = [each for each in subjects if each.proof]
    if not named:
        return [[] for _ in subjects]
    since = min(each.proof_since for each in named)
    until = shifted(_spanning(named)[1], LEASE_REACH)
    rows = ask(
        "SELECT time, source, message, event_uid FROM silver.event "
        "WHERE list_contains($uids, event_uid) AND time >= $since AND time <= $until",
        {
            "uids": sorted({uid for each in named for uid in each.proof}),
            "since": since,
            "until": until,
        },
        needs=("silver.event",),
        within={"silver.event": ("time", since, until)},
    )
    return [proof_lines(each, rows) for each in subjects]


def proof_lines(one: Subject, events: Iterable[RerunRow]) -> list[RerunRow]:
    """Those of these events that an alert's attribution names, the oldest first."""
    lines = [
        {name: row[name] for name in ("time", "source", "message", "event_uid")}
        for row in events
        if row["event_uid"] in one.proof and row["time"] >= one.proof_since
    ]
    return sorted(lines, key=lambda line: (line["time"], line["event_uid"]))


def _batches(
    ask: Ask,
    settings: Settings,
    subjects: Sequence[Subject],
    events: Sequence[Sequence[RerunRow]],
) -> list[list[RerunRow]]:
    """By the ledger those that wrote the events, as far as names of files still tell, and the
    alert."""
    uids = {event["event_uid"] for of_one in events for event in of_one}
    wrote = _batches_of(ask, settings, sorted(uids), _spanning(subjects))
    wanted = []
    for subject, of_one in zip(subjects, events, strict=True):
        own = {batch for event in of_one for batch in wrote.get(event["event_uid"], ())}
        if subject.row.get("batch") is not None:
            own.add(f"alert {int(subject.row['batch'])}")
        wanted.append(own)
    rows = ask(
        "SELECT job, batch_id, started_at, finished_at, pack, versions FROM ops.ledger "
        "WHERE list_contains($batches, job || ' ' || batch_id) ORDER BY started_at",
        {"batches": sorted(set().union(*wanted))},
        needs=("ops.ledger",),
    )
    return [[row for row in rows if f"{row['job']} {row['batch_id']}" in own] for own in wanted]


def _batches_of(
    ask: Ask, settings: Settings, uids: Sequence[str], span: tuple[datetime, datetime]
) -> dict[str, set[str]]:
    """The batches, as job and number, that wrote these events, by uid."""
    path = str(settings.lake_root / EVENT.path).replace("'", "''")
    rows = ask(
        f"SELECT DISTINCT event_uid, filename FROM delta_scan('{path}') "
        "WHERE list_contains($uids, event_uid) AND time >= $since AND time <= $until",
        {"uids": list(uids), "since": span[0], "until": span[1]},
        needs=("silver.event",),
        within={"silver.event": ("time", *span)},
    )
    batches: dict[str, set[str]] = {}
    for row in rows:
        if match := _BATCH.search(Path(row["filename"]).name):
            batches.setdefault(row["event_uid"], set()).add(f"{match[1]} {int(match[2])}")
    return batches
