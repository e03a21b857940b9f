"""A dossier of one device, address or host: its leases, its alerts, the evidence."""

from __future__ import annotations

from typing import Any

from reporting.document import charts
from reporting.document.content import Block, Chart, Column, Report, Section, Table, Tile
from reporting.document.request import ReportRequest
from reporting.document.text import harmless_text
from reporting.figures.dossier import MOST, actions_on, alerts_naming, evidence_lines, leases

NAME = "device"
QUESTIONS = 4
DOC = (
    "A dossier of one device: leases, alerts, who used it, and the lines it rests on with digests."
)
SUBJECT = "a MAC address, an address or a host name"
TABLES = (
    "bronze.record", "silver.event", "silver.dhcp_segment", "silver.dhcp_session", "gold.alert",
    "gold.alert_current", "gold.alert_action",
)  # fmt: skip
OF_TENANT = ""
"""It is of things that have rows: nothing of it is left out."""


def compose(request: ReportRequest) -> Report:
    """The dossier over an interval."""
    held = leases(request)
    macs = sorted({row["mac"] for row in held if row["mac"]})
    # An address is one device after another, so its leases name no further alerts.
    is_address = any(row["ip"] == request.subject for row in held)
    names = [request.subject] if is_address else [request.subject, *macs]
    alerts = alerts_naming(request, names)
    evidence = evidence_lines(request, alerts)
    return Report(
        NAME,
        "Dossier",
        request.interval,
        request.made_at,
        subject=request.subject,
        headline=_headline(request, held, macs),
        tiles=[
            Tile("Leases", len(held)),
            Tile("Devices", len(macs)),
            Tile("Alerts", len(alerts)),
            Tile("Lines of evidence", len(evidence)),
        ],
        sections=[
            lease_section(request, held),
            alert_section(request, alerts),
            evidence_section(request, evidence),
        ],
        arrival=request.arrived(),
    )


def _headline(request: ReportRequest, held: list[dict[str, Any]], macs: list[str]) -> str:
    """The name that people know the device by, beside what was asked for; empty: none is known."""
    named = [row["hostname"] for row in held if row["hostname"]]
    # An address that several devices held has no name of its own.
    if len(macs) != 1 or not named or named[-1].lower() == request.subject.lower():
        return ""
    return f"Dossier of {harmless_text(named[-1])} ({harmless_text(request.subject)})"


def lease_section(request: ReportRequest, held: list[dict[str, Any]]) -> Section:
    """Who held which address, as lanes and as a table."""
    zone, interval = request.interval.zone, request.interval
    columns = [
        Column("ip", "Address", "code"),
        Column("mac", "Device", "code"),
        Column("hostname", "Name"),
        Column("scope", "Site"),
        Column("lease_start", f"From, {zone}", "clock"),
        Column("lease_end", f"To, {zone}", "clock"),
    ]
    spans = [
        (
            row["ip"],
            interval.local(row["lease_start"]),
            interval.local(row["lease_end"]),
            f"{row['hostname'] or 'no name'} ({row['mac']})",
        )
        for row in held[:MOST]
    ]
    start, end = interval.local(interval.start), interval.local(interval.end)
    svg = charts.lanes("Leases", spans, start, end) if spans else None
    empty = "No lease in this interval."
    return Section(
        "Addresses",
        [
            Chart("lease_lanes", svg, columns, held, empty=empty),
            Table("leases", columns, held[:MOST], whole=len(held)),
        ],
    )


def alert_section(request: ReportRequest, alerts: list[dict[str, Any]]) -> Section:
    """The alerts in order of time, and what people did about them."""
    zone = request.interval.zone
    columns = [
        Column("event_time", f"Newest event, {zone}", "clock"),
        Column("level", "Level", "level"),
        Column("title", "Alert"),
        Column("count", "Findings", "number"),
        Column("state", "State"),
        Column("verdict", "Verdict"),
        Column("suppressed_by", "Held back by"),
        Column("alert_id", "Id", "code"),
    ]
    done = [
        Column("at", f"When, {zone}", "clock"),
        Column("who", "Who"),
        Column("action", "What"),
        Column("value", "Value"),
        Column("comment", "Why"),
        Column("alert_id", "Alert", "code"),
    ]
    actions = actions_on(request, alerts)
    blocks: list[Block] = [
        Table("alerts", columns, alerts[:MOST], whole=len(alerts), empty="No alert.")
    ]
    if actions:
        blocks.append(
            Table("actions", done, actions[:MOST], title="What people did", whole=len(actions))
        )
    return Section("Alerts", blocks)


def evidence_section(request: ReportRequest, evidence: list[dict[str, Any]]) -> Section:
    """The lines with their digests; all of them are in the CSV of the table."""
    zone = request.interval.zone
    columns = [
        Column("time", f"Event, {zone}", "clock"),
        Column("source", "Source", "word"),
        Column("message", "What it says"),
        Column("record_id", "Record", "code"),
        Column("sha256", "SHA-256 of its bytes", "code"),
    ]
    table = Table(
        "evidence", columns, evidence[:MOST], whole=len(evidence),
        empty="The alerts name no line that is still kept.",
        note="The digest is of the bytes as received (bronze.record.raw); without one the line is "
        "no longer kept.",
    )  # fmt: skip
    return Section("Evidence", [table])
