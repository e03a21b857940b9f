"""Any slice of silver.event with the device that held the address then.

Asked by address, the answer is its events, each with its holder. Asked by device (hardware
address, or the name it gave the DHCP server), first the spans in which it held addresses are
found, then the events of those: two questions that name their addresses and times, so that files,
or the parts of them, in which none of them lies are not read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np

from alerts.domain.entity import NORMAL, event_instant, micros
from api import models
from api.services.reader import Reader, ReaderRow, cursor_of, parse_instant, reader_cursor
from enrich.attribution.asof_join import true_spans
from enrich.attribution.confidence import LEASED, NONE, STATIC, standing
from infra.config.settings import ScopeSettings

By = Literal["ip", "mac", "host"]

_ADDRESSES = """
SELECT DISTINCT ip FROM silver.dhcp_segment
WHERE {column} = $value AND seg_start < $until AND seg_end > $since
"""
# A lease began and ended as its newest statement (`rev`) says.
_SEGMENTS = """
WITH said AS (
  SELECT * FROM silver.dhcp_segment
  WHERE ip IN ({ips}) AND ip BETWEEN $first_ip AND $last_ip AND kind <> 'heartbeat'
),
leases AS (
  SELECT scope, session_id, max_by(session_start, rev) AS lease_start,
         max_by(session_end, rev) AS lease_end
  FROM said WHERE session_id IS NOT NULL GROUP BY scope, session_id
)
SELECT said.scope, ip, seg_start, seg_end, mac, hostname, said.session_id, lease_start, lease_end,
       rev
FROM said LEFT JOIN leases ON leases.scope = said.scope AND leases.session_id = said.session_id
WHERE seg_start < $until AND seg_end > $since AND seg_end > seg_start
"""
_EVENTS = """
SELECT e.event_uid, e.time, e.class_uid, e.class_name, e.source, e.message, e.scope,
       e.src_ip AS ip, e.user_name, e.host_name
FROM silver.events e {held}
WHERE e.src_ip IN ({ips}) AND e.src_ip BETWEEN $first_ip AND $last_ip
  AND e.time >= $since AND e.time < $until {after}
ORDER BY e.time DESC, e.event_uid DESC LIMIT {limit}
"""
_HELD = """
JOIN (SELECT unnest($scopes) AS scope, unnest($held) AS ip, unnest($starts) AS start_us,
             unnest($ends) AS end_us) h
ON e.scope = h.scope AND e.src_ip = h.ip
   AND epoch_us(e.time) >= h.start_us AND epoch_us(e.time) < h.end_us
"""
_AFTER = "AND (e.time < $time OR (e.time = $time AND e.event_uid < $uid))"


@dataclass(frozen=True)
class _Held:
    """A span that is true: nothing later was said about it. Microseconds since 1970."""

    start_us: int
    end_us: int
    segment: ReaderRow


def slice_of(
    reader: Reader,
    scopes: Sequence[ScopeSettings],
    by: By,
    value: str,
    since: datetime,
    until: datetime | None,
    limit: int,
    cursor: str | None,
) -> models.AttributedPage:
    """One page of events in [since, until), newest first, each with its holder as known now.

    `until`: none is now.

    By `mac` or `host` only events of the time in which that device held the address. Raises
    `Usage` for a value that is not of its kind, or a wrong cursor.
    """
    named = NORMAL[by](value)
    params: ReaderRow = {"since": since, "until": until or datetime.now(UTC)}
    # The end as it was asked: "now" differs with each page and would end the cursor.
    question = {by: named, "since": str(since), "until": str(until)}
    ips = [named] if by == "ip" else _addresses(reader, by, named, params)
    true = _true(_segments(reader, ips, params))
    if by != "ip":
        true = _of_device(true, "mac" if by == "mac" else "hostname", named)
        # Addresses that a later statement gave to others fall out here.
        ips = sorted({ip for _, ip in true})
    after = ""
    if cursor:
        time, uid = reader_cursor(cursor, question, 2)
        params |= {"time": parse_instant(time), "uid": uid}
        after = _AFTER
    events = _events(reader, ips, true if by != "ip" else None, params, after, limit + 1)
    page = events[:limit]
    last = page[-1] if len(events) > limit else None
    return models.AttributedPage(
        items=[_item(row, true, scopes) for row in page],
        next=cursor_of(question, last["time"].isoformat(), last["event_uid"]) if last else None,
    )


_Spans = dict[tuple[str | None, str], list[_Held]]
"""True spans by scope and address, in order."""


def _addresses(reader: Reader, by: By, named: str, params: ReaderRow) -> list[str]:
    sql = _ADDRESSES.format(column="mac" if by == "mac" else "hostname")
    rows = reader.rows(sql, params | {"value": named}, needs=("silver.dhcp_segment",))
    return sorted(str(row["ip"]) for row in rows)


def _segments(reader: Reader, ips: Sequence[str], params: ReaderRow) -> list[ReaderRow]:
    if not ips:
        return []
    names, values = _listed(ips)
    return reader.rows(_SEGMENTS.format(ips=names), params | values, needs=("silver.dhcp_segment",))


def _true(segments: Sequence[ReaderRow]) -> _Spans:
    """What is true of each address: the highest rev that covers an instant counts."""
    # As numbers: `true_spans` works on whole columns at once.
    keys = sorted({(row["scope"] or "", row["ip"]) for row in segments})
    numbers = {key: number for number, key in enumerate(keys)}
    columns = [
        np.array(column, dtype=np.int64)
        for column in (
            [numbers[row["scope"] or "", row["ip"]] for row in segments],
            [micros(row["seg_start"]) for row in segments],
            [micros(row["seg_end"]) for row in segments],
            [row["rev"] for row in segments],
        )
    ]
    results: _Spans = defaultdict(list)
    _, starts, ends, owners = (column.tolist() for column in true_spans(*columns))
    for start, end, owner in zip(starts, ends, owners, strict=True):
        row = segments[owner]
        results[row["scope"], row["ip"]].append(_Held(start, end, row))
    return results


def _of_device(true: _Spans, column: str, named: str) -> _Spans:
    mine = {
        key: [held for held in spans if held.segment[column] == named]
        for key, spans in true.items()
    }
    return {key: spans for key, spans in mine.items() if spans}


def _events(
    reader: Reader,
    ips: Sequence[str],
    held: _Spans | None,
    params: ReaderRow,
    after: str,
    limit: int,
) -> list[ReaderRow]:
    """Events of the addresses; with `held` only those inside its spans."""
    if not ips:
        return []
    names, values = _listed(ips)
    params_of_spans = params | values
    if held is not None:
        spans = [(*key, *times) for key, leases in held.items() for times in _merged(leases)]
        for place, name in enumerate(("scopes", "held", "starts", "ends")):
            params_of_spans[name] = [span[place] for span in spans]
        first, last = min(span[2] for span in spans), max(span[3] for span in spans)
        # Narrowed to the spans themselves: times outside of them need not be read.
        params_of_spans["since"] = max(params["since"], event_instant(first))
        params_of_spans["until"] = min(params["until"], event_instant(last))
    sql = _EVENTS.format(held="" if held is None else _HELD, ips=names, after=after, limit=limit)
    return reader.rows(sql, params_of_spans, needs=("silver.event", "silver.events"))


def _merged(spans: Iterable[_Held]) -> list[tuple[int, int]]:
    """Spans that follow each other without a gap, as a lease and its renewals do, as one."""
    whole: list[tuple[int, int]] = []
    for held in spans:
        if whole and whole[-1][1] == held.start_us:
            whole[-1] = (whole[-1][0], held.end_us)
        else:
            whole.append((held.start_us, held.end_us))
    return whole


def _item(
    event: ReaderRow, true: _Spans, scopes: Sequence[ScopeSettings]
) -> models.AttributedEvent:
    spans = true.get((event["scope"], event["ip"]), [])
    us = micros(event["time"])
    # True spans do not overlap, so the last one that began is the only one that may cover it.
    place = bisect_right(spans, us, key=lambda held: held.start_us) - 1
    covering = spans[place].segment if place >= 0 and us < spans[place].end_us else {}
    by_hand = standing(event["ip"], event["scope"], scopes) if scopes else None
    leased = covering.get("mac") is not None
    status = STATIC if by_hand == STATIC else LEASED if leased else by_hand or NONE
    # What is set by hand has no device; the session tells that DHCP gave it away all the same.
    held = ("mac", "hostname") if status == LEASED else ()
    lease = ("session_id", "lease_start", "lease_end") if leased else ()
    names = ("mac", "hostname", "session_id", "lease_start", "lease_end")
    lines = {name: covering[name] if name in (*held, *lease) else None for name in names}
    return models.AttributedEvent(**event, **lines, status=status, rev=covering.get("rev"))


def _listed(values: Sequence[str]) -> tuple[str, ReaderRow]:
    """Values as named parameters, and the first and last of them.

    DuckDB's Delta extension passes files over by `=` and by ranges of texts and numbers; by a list,
    or by times, only what lies inside a file is.
    """
    named = {f"ip{number}": value for number, value in enumerate(values)}
    bounds = {"first_ip": min(values), "last_ip": max(values)}
    return ", ".join(f"${name}" for name in named), named | bounds
