"""The evidence bundle: all that is behind some alerts, in one file that can be checked anywhere.

A zip of lines of JSON, with `SHA256SUMS` as `sha256sum -c` reads it. Nothing is left out in
silence: what an alert names and no table has any more stands in the manifest under `missing`.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from alerts.domain.alert_body import damage, readable_body
from alerts.explain.explain import explanation
from alerts.explain.provenance import (
    LEASE_REACH,
    Provenance,
    proof_lines,
    provenance_of,
    shifted,
)
from infra.config.settings import Settings
from infra.delta.log_reader import newest_version, table_id
from infra.delta.plain_files import Span
from infra.storage.paths import path_of

Row = dict[str, Any]
Ask = Callable[..., list[Row]]
Tell = Callable[[str, float, float | None], None]
"""`tell(step, done, total)`: what is being done, after how many steps of how many."""
FORM = "headgate-evidence-1"
MANIFEST, SUMS, README = "manifest.json", "SHA256SUMS", "README.txt"
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_AT_ONCE = 500
"""Ids of one question."""
_ALERTS_AT_ONCE = 50
"""Alerts whose findings and events are asked for together: the files of their time are opened
once for all of them, and the lists that rows are compared with stay short."""
_FURTHER_STEPS = 4
"""Of a bundle once the findings are known."""
_READ = ("bronze.record", "silver.event", "silver.dhcp_segment", "gold.finding",
         "gold.attribution", "gold.alert", "gold.alert_action")  # fmt: skip
LEFT_OUT = (
    "for who is limited to tenants: batches and versions of tables, which are everybody's; "
    "conditions of rules and the text of own ones, which may name others"
)
_NOTE = """Evidence of a case, made by Headgate.

    sha256sum -c SHA256SUMS          every file is as it was written
    headgate evidence verify FILE    that, and that alerts, events and records belong together

alerts.ndjson        every revision of each alert
explanations.ndjson  rule and its text, the values that matched, batches and versions of tables
findings.ndjson      what rules found
attributions.ndjson  who held the address, each revision
leases.ndjson        statements of the DHCP log about these addresses around that time
events.ndjson        the events, as parsed
records.ndjson       the bytes they were parsed from (raw: base64) with the SHA-256 of each
actions.ndjson       what people did to the alerts
case.json            the case, where it is one
"""


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written. `digest`: SHA-256 of the file."""

    file: Path
    digest: str
    counts: Mapping[str, int]
    missing: Mapping[str, Sequence[str]]
    damaged: Sequence[str] = ()


@dataclass
class _Steps:
    """How far it is."""

    tell: Tell
    begun: int = 0
    total: int | None = None
    """Known once it is known how many alerts there are."""

    def begin(self, step: str) -> None:
        """Say that this step begins."""
        self.tell(step, self.begun, self.total)
        self.begun += 1


@dataclass
class _Gathered:
    """What is behind the alerts, by the file it goes to."""

    alerts: list[Row] = field(default_factory=list)
    provenance: list[Provenance] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    events: dict[str, list[Row]] = field(default_factory=dict)
    """By uid; mostly one, for what was delivered twice has a row of its own."""
    uids: set[str] = field(default_factory=set)
    since: datetime = _LAST
    until: datetime = _FIRST

    def know(self, events: Iterable[Row]) -> None:
        """Take these events in; the same rows may come with several alerts."""
        for row in events:
            same = self.events.setdefault(str(row["event_uid"]), [])
            if row not in same:
                same.append(row)


def write_bundle(
    ask: Ask, settings: Settings, alert_ids: Sequence[str], file: Path, *, who: str,
    case: Row | None = None, limited: bool = False, tell: Tell = lambda *_: None,
) -> Bundle:  # fmt: skip
    """Write the bundle of these alerts; whole or not at all.

    `limited`: for who is limited to tenants, without what is everybody's, as the manifest says.
    `tell`: is called before each step.
    """
    steps = _Steps(tell)
    versions = {} if limited else _versions(settings)
    gathered = _gather(ask, settings, alert_ids, limited, steps)
    steps.begin("events")
    events = _events(ask, gathered)
    steps.begin("raw records")
    records = _records(ask, events)
    steps.begin("attributions, leases and acts")
    files: dict[str, list[Row]] = {
        "alerts.ndjson": gathered.alerts,
        "explanations.ndjson": _explanations(settings, gathered, events, limited),
        "findings.ndjson": gathered.findings,
        "attributions.ndjson": _attributions(ask, gathered.findings),
        "leases.ndjson": _leases(ask, gathered),
        "events.ndjson": events,
        "records.ndjson": records,
        "actions.ndjson": _in_parts(
            ask, "SELECT * FROM gold.alert_action WHERE list_contains($ids, alert_id)"
            ' ORDER BY "at", action_id', alert_ids, {}, ("gold.alert_action",)),
    }  # fmt: skip
    event_uids = {str(row["event_uid"]) for row in [*events, *gathered.findings]}
    wanted = {str(name) for row in events for name in row["record_ids"] or ()}
    missing = {
        "alerts": sorted({*alert_ids} - {row["alert_id"] for row in gathered.alerts}),
        "events": sorted(gathered.uids - event_uids),
        "records": sorted(wanted - {row["record_id"] for row in records}),
    }
    manifest = {
        "form": FORM,
        "made_at": datetime.now(UTC),
        "made_by": who,
        "headgate": version("headgate"),
        "alerts": list(alert_ids),
        "tables": versions,
        "rows": {name: len(rows) for name, rows in files.items()},
        "missing": missing,
    }
    rows_of_alerts = ((row["body"], row["alert_id"], row["revision"]) for row in gathered.alerts)
    damaged = [sentence for row in rows_of_alerts if (sentence := damage(*row)) is not None]
    if damaged:
        manifest["damaged"] = damaged
    if limited:
        manifest["left_out"] = LEFT_OUT
    steps.begin("hashes")
    written = {name: _lines(rows) for name, rows in files.items()}
    written |= {"case.json": _json(case)} if case is not None else {}
    written |= {README: _NOTE.encode(), MANIFEST: _json(manifest)}
    digest = _zip(file, written)
    return Bundle(file, digest, manifest["rows"], missing, damaged)  # type: ignore[arg-type]  # built above


def _gather(
    ask: Ask, settings: Settings, alert_ids: Sequence[str], limited: bool, steps: _Steps
) -> _Gathered:
    steps.begin("alerts")
    gathered = _Gathered()
    findings: dict[str, Row] = {}
    gathered.alerts = _in_parts(
        ask,
        "SELECT * FROM gold.alert WHERE list_contains($ids, alert_id) ORDER BY alert_id, revision",
        alert_ids, {}, ("gold.alert",),
    )  # fmt: skip
    for row in gathered.alerts:
        # As JSON within JSON nobody could read it without a tool.
        row["body"] = readable_body(row["body"])
        shown = [*(row["body"].get("evidence") or ())]
        proof = (row["body"].get("attribution") or {}).get("evidence") or ()
        gathered.uids |= {str(each["event_uid"]) for each in shown} | {str(uid) for uid in proof}
    # By time, so that alerts of one part lie side by side.
    ids = sorted({row["alert_id"]: row["window_start"] for row in gathered.alerts}.items(),
                 key=lambda pair: pair[::-1])  # fmt: skip
    steps.total = 1 + math.ceil(len(ids) / _ALERTS_AT_ONCE) + _FURTHER_STEPS
    for begin in range(0, len(ids), _ALERTS_AT_ONCE):
        steps.begin("findings")
        part = [alert_id for alert_id, _ in ids[begin : begin + _ALERTS_AT_ONCE]]
        for each in provenance_of(ask, settings, part, limited=limited, proof=False):
            gathered.provenance.append(each)
            gathered.know(each.rows)
            since, until = each.subject.span
            gathered.since = min(gathered.since, since)
            gathered.until = max(gathered.until, until)
            findings |= {str(row["finding_id"]): row for row in each.findings}
    gathered.findings = list(findings.values())
    for row in gathered.findings:
        own = [row["event_uid"]] if row["kind"] == "event" else []
        gathered.uids |= {*own, *(str(each["event_uid"]) for each in row.get("evidence") or ())}
    return gathered


def _events(ask: Ask, gathered: _Gathered) -> list[Row]:
    """All events behind the alerts: those of their time are known, the others are asked for."""
    others = sorted(gathered.uids - gathered.events.keys())
    if others:
        # DHCP lines that prove a lease lie before what was done under it.
        since = shifted(gathered.since, -LEASE_REACH)
        until = shifted(gathered.until, LEASE_REACH)
        # A lease may have begun long before.
        proofs = [each.subject for each in gathered.provenance if each.subject.proof]
        since = min([since, *(subject.proof_since for subject in proofs)])
        gathered.know(
            _in_parts(
                ask,
                "SELECT * FROM silver.event WHERE list_contains($ids, event_uid)"
                " AND time >= $since AND time <= $until",
                others,
                {"since": since, "until": until},
                ("silver.event",),
                within={"silver.event": ("time", since, until)},
            )
        )
    rows = [row for same in gathered.events.values() for row in same]
    return sorted(rows, key=lambda row: (row["time"], row["event_uid"]))


def _explanations(
    settings: Settings, gathered: _Gathered, events: Sequence[Row], limited: bool
) -> list[Row]:
    return [
        explanation(
            settings, replace(each, proof=proof_lines(each.subject, events)), limited=limited
        )
        for each in gathered.provenance
    ]


def _records(ask: Ask, events: Sequence[Row]) -> list[Row]:
    ids = sorted({str(name) for row in events for name in row["record_ids"] or ()})
    if not ids:
        return []
    times = [row["received_at"] for row in events]
    since, until = min(times) - timedelta(hours=1), max(times) + timedelta(hours=1)
    rows = _in_parts(
        ask,
        "SELECT * FROM bronze.record WHERE list_contains($ids, record_id)"
        " AND received_at >= $since AND received_at <= $until ORDER BY received_at, record_id",
        ids,
        {"since": since, "until": until},
        ("bronze.record",),
        within={"bronze.record": ("received_at", since, until)},
    )
    # A record that was delivered twice has the same id, and the same bytes.
    unique = {str(row["record_id"]): row for row in rows}
    return [
        row | {"raw_sha256": hashlib.sha256(bytes(row["raw"] or b"")).hexdigest()}
        for row in unique.values()
    ]


def _attributions(ask: Ask, findings: Sequence[Row]) -> list[Row]:
    if not findings:
        return []
    ids = [str(row["finding_id"]) for row in findings]
    times = [row["event_time"] for row in findings]
    return _in_parts(
        ask,
        "SELECT * FROM gold.attribution WHERE list_contains($ids, finding_id)"
        " ORDER BY finding_id, rev",
        ids, {}, ("gold.attribution",),
        within={"gold.attribution": ("event_time", min(times), max(times))},
    )  # fmt: skip


def _leases(ask: Ask, gathered: _Gathered) -> list[Row]:
    ips = sorted({str(row["src_ip"]) for row in gathered.alerts if row["src_ip"]})
    return _in_parts(
        ask,
        "SELECT * FROM silver.dhcp_segment WHERE list_contains($ids, ip)"
        " AND seg_start <= $until AND seg_end >= $since ORDER BY ip, rev",
        ips, {"since": gathered.since, "until": gathered.until}, ("silver.dhcp_segment",),
    )  # fmt: skip


def _in_parts(
    ask: Ask, sql: str, ids: Sequence[str], params: Row, needs: Sequence[str],
    within: Mapping[str, Span] | None = None,
) -> list[Row]:  # fmt: skip
    """All rows of a question about ids, some hundred at a time; `within`: as readers have it."""
    parts = (ids[begin : begin + _AT_ONCE] for begin in range(0, len(ids), _AT_ONCE))
    more = {"within": within} if within else {}
    return [
        row for part in parts for row in ask(sql, params | {"ids": list(part)}, needs=needs, **more)
    ]


def _versions(settings: Settings) -> dict[str, dict[str, Any]]:
    """Identity and newest version of each table, before anything was read of it."""
    folders = {name: settings.lake_root / path_of(name) for name in _READ}
    return {
        name: {"version": newest_version(folder), "id": table_id(folder)}
        for name, folder in folders.items()
        if newest_version(folder) >= 0
    }


def _zip(file: Path, content: Mapping[str, bytes]) -> str:
    sums = "".join(
        f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in sorted(content.items())
    )
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        # Its owner's alone: it holds logs of people.
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w+b") as out:
            with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as bundle:
                for name, text in [*sorted(content.items()), (SUMS, sums.encode())]:
                    bundle.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
            out.seek(0)
            digest = hashlib.file_digest(out, "sha256").hexdigest()
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return digest


def _lines(rows: Iterable[Row]) -> bytes:
    return b"".join(_each_line(rows))


def _each_line(rows: Iterable[Row]) -> Iterator[bytes]:
    for row in rows:
        yield msgspec.json.encode(row, enc_hook=str) + b"\n"


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=1) + b"\n"
