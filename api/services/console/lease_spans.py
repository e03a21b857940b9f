"""Who held addresses in a span of time, as known now or as it was known at an instant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from alerts.domain.entity import event_instant, micros
from api.services.reader import Reader, ReaderRow
from enrich.attribution.asof_join import true_spans

MOST = 20_000
"""Statements about addresses that are gone through, the oldest first."""

_SEGMENTS = """
SELECT scope, ip, seg_start, seg_end, mac, hostname, session_id, known_at, learned_at, rev
FROM silver.dhcp_segment
WHERE kind <> 'heartbeat' AND seg_end > seg_start AND seg_start < $until AND seg_end > $since
  AND ($known_by IS NULL OR learned_at <= $known_by) AND {which}
ORDER BY seg_start LIMIT {most} + 1
"""
_WHICH = {
    "ip": "ip = $value",
    "mac": "ip IN (SELECT DISTINCT ip FROM silver.dhcp_segment WHERE mac = $value"
    " AND seg_start < $until AND seg_end > $since)",
    "host": "ip IN (SELECT DISTINCT ip FROM silver.dhcp_segment WHERE hostname = $value"
    " AND seg_start < $until AND seg_end > $since)",
}


@dataclass(frozen=True)
class LeaseSpan:
    """A span in which one client held one address, as the newest word on it says."""

    scope: str
    ip: str
    mac: str
    hostname: str | None
    session_id: str | None
    start: datetime
    end: datetime
    learned_at: datetime


def lease_spans(
    reader: Reader,
    *,
    since: datetime,
    until: datetime,
    ip: str | None = None,
    mac: str | None = None,
    host: str | None = None,
    known_by: datetime | None = None,
) -> tuple[list[LeaseSpan], datetime | None]:
    """Spans in [since, until), by time: of an address, or of a device by its MAC address or name.

    `known_by`: as the lines that had arrived then told it; none: as it is known now. With them the
    instant from which on nothing is known, since there are too many statements; None: all is.
    """
    kind, value = next((k, v) for k, v in (("ip", ip), ("mac", mac), ("host", host)) if v)
    params = {"value": value, "since": since, "until": until, "known_by": known_by}
    rows = reader.rows(
        _SEGMENTS.format(which=_WHICH[kind], most=MOST), params, needs=("silver.dhcp_segment",)
    )
    spans, cut = _joined(_true(rows[:MOST])), rows[MOST]["seg_start"] if len(rows) > MOST else None
    if cut is not None:
        # Who is said to have held an address from then on may be taken back by what is not read.
        spans = [replace(s, end=min(s.end, cut)) for s in spans if s.start < cut]
    # By device all statements about its addresses are read: a later one may have taken them away.
    wanted = [s for s in spans if mac in (None, s.mac) and host in (None, s.hostname)]
    return sorted(wanted, key=lambda s: (s.start, s.ip)), cut


def _true(rows: Sequence[ReaderRow]) -> list[LeaseSpan]:
    if not rows:
        return []
    keys = sorted({(row["scope"] or "", row["ip"]) for row in rows})
    numbers = {key: number for number, key in enumerate(keys)}
    columns = [
        np.array(column, dtype=np.int64)
        for column in (
            [numbers[row["scope"] or "", row["ip"]] for row in rows],
            [micros(row["seg_start"]) for row in rows],
            [micros(row["seg_end"]) for row in rows],
            [row["rev"] for row in rows],
        )
    ]
    _, starts, ends, owners = (column.tolist() for column in true_spans(*columns))
    return [
        LeaseSpan(
            scope=rows[owner]["scope"] or "",
            ip=rows[owner]["ip"],
            mac=rows[owner]["mac"],
            hostname=rows[owner]["hostname"],
            session_id=rows[owner]["session_id"],
            start=event_instant(start),
            end=event_instant(end),
            learned_at=rows[owner]["learned_at"],
        )
        for start, end, owner in zip(starts, ends, owners, strict=True)
        # "Nobody" is a statement as well, and had to take part until here.
        if rows[owner]["mac"] is not None
    ]


def _joined(spans: Sequence[LeaseSpan]) -> list[LeaseSpan]:
    """Spans of one client that follow each other without a gap, as a lease and its renewals."""
    by_address: dict[tuple[str, str], list[LeaseSpan]] = defaultdict(list)
    for span in sorted(spans, key=lambda s: s.start):
        before = by_address[span.scope, span.ip]
        if before and before[-1].mac == span.mac and before[-1].end == span.start:
            first = before[-1]
            before[-1] = LeaseSpan(
                first.scope, first.ip, first.mac, span.hostname or first.hostname,
                span.session_id, first.start, span.end, max(first.learned_at, span.learned_at),
            )  # fmt: skip
        else:
            before.append(span)
    return [span for each in by_address.values() for span in each]
