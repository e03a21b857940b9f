"""A device, an address, a user, a host or a domain: its timeline in lanes, as known now or then."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Depends, Path, Request
from fastapi.responses import RedirectResponse, Response

from alerts.domain.entity import NORMAL
from alerts.domain.levels import severity_of_level
from api.console.lanes import Lane, Picture, Scale, TimeMark, picture
from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import Here, Signed
from api.console.time_words import earliest
from api.routes.access import Services, services_of
from api.services.console import entity_lanes
from api.services.console.entity_lanes import EntityKind
from api.services.console.lease_spans import LeaseSpan, lease_spans
from api.services.entities.entity_names import LOOKED_BACK, MOST, address_of, entities_named
from api.services.entities.timeline import timeline
from api.services.entities.user_evidence import inventory_evidence, witnesses
from infra.config.tenants import listed_tenants, owner_of
from infra.errors import HeadgateError, Usage

router = console_router()
PAGE = Page("entity", "Entity", router)

WIDTH = 1080
LANES = ("Logins", "DNS", "Network", "DHCP", "Other")
_KIND_NAMES = {"ip": "Address", "mac": "Device", "user": "User", "host": "Host", "domain": "Domain"}
AROUND = timedelta(minutes=5)
_LEASE_LANES = 8
"""More rows than a reader takes in; those held last are drawn."""
_FEW_ALERTS, _FEW_LEASES = 12, 20
"""Rows of the lists beside the timeline."""
_LONGEST = 253
"""Characters of a name: as DNS has it."""


@router.get("/entity/{kind}/{value:path}")
def entity(
    request: Request,
    services: Here,
    session: Signed,
    whole: Annotated[Services, Depends(services_of)],
    kind: EntityKind,
    value: Annotated[str, Path(max_length=_LONGEST)],
    since: str = "",
    until: str = "",
    known_by: str = "",
    tenant: str = "",
    cursor: str | None = None,
) -> Response:
    """The page; `tenant`: of what is that tenant's alone."""
    now = datetime.now(UTC)
    if tenant:
        services = _of_tenant(whole, services, tenant)
    named = NORMAL[kind](value)
    start, end = _window(services, kind, named, since, until, now)
    then = earliest("known_by", known_by, now)
    spans, cut = _spans(services, kind, named, start, end, then)
    alerts = _alerts(services, kind, named, start, end, then)
    counts = entity_lanes.lane_counts(services.reader, kind, named, start, end, spans)
    events = timeline(services.reader, kind, named, start, end, 60, cursor)
    holder = None if kind != "ip" or not spans else spans[-1]
    return respond(
        request,
        "entity.html",
        page=PAGE,
        kind=kind,
        kind_name=_KIND_NAMES[kind],
        value=named,
        since=start,
        until=end,
        known_by=then,
        spans=spans,
        cut=cut,
        holder=holder,
        hostname=next((s.hostname for s in reversed(spans) if s.hostname), None),
        alerts=alerts,
        most_alerts=entity_lanes.MOST_ALERTS,
        few_alerts=_FEW_ALERTS,
        few_leases=_FEW_LEASES,
        undrawn=max(0, len({(_row_of(kind, s), s.scope) for s in spans}) - _LEASE_LANES),
        risk=_risk(alerts, named),
        lanes=_lanes(kind, start, end, spans, counts, alerts, then, tenant),
        tenant=tenant,
        owners=[] if tenant else _owners(spans, counts, alerts),
        items=events.items,
        after=events.next,
        # Inventories do not say whose they are.
        known=None
        if services.reader.tenants is not None
        else _quietly(inventory_evidence, services.settings, kind, named, end, None),
        used_by=_quietly(witnesses, services.reader, services.settings, kind, named, end, None)
        if kind in ("ip", "mac", "host")
        else None,
        state={"since": since, "until": until, "known_by": known_by, "tenant": tenant},
        low=int(start.timestamp()),
        high=int(min(now, end + timedelta(hours=1)).timestamp()),
    )


@router.get("/entity")
def find_entity(request: Request, services: Here, session: Signed, q: str = "") -> Response:
    """To the page of whatever is typed; a choice where several are called so, or begin so."""
    text = q.strip()
    if not text:
        raise Usage("q: type an address, a MAC address, a user, a host or a domain")
    if len(text) > _LONGEST:
        raise Usage(f"q: {len(text)} characters, at most {_LONGEST}")
    address = address_of(text)
    if address is not None:
        return _to(*address)
    names = entities_named(services.reader, text, datetime.now(UTC))
    whole = [each for each in names if each.whole]
    if len(whole) == 1:
        return _to(whole[0].kind, whole[0].value)
    return respond(
        request,
        "entities.html",
        page=PAGE,
        typed=text,
        names=names[:MOST],
        more=len(names) > MOST,
        kind_names=_KIND_NAMES,
        days=LOOKED_BACK.days,
    )


def _to(kind: str, named: str) -> Response:
    return RedirectResponse(f"/entity/{kind}/{quote(named, safe='')}", status_code=303)


def _window(
    services: Services, kind: EntityKind, named: str, since: str, until: str, now: datetime
) -> tuple[datetime, datetime]:
    """What is asked for; where nothing is, the time in which something is known of it."""
    start, end = earliest("since", since, now), earliest("until", until, now)
    if start is None and end is None:
        span = entity_lanes.span_of(services.reader, kind, named)
        if span is not None:
            # A week at most: lanes of a year would show nothing.
            low = max(span[0], span[1] - timedelta(days=7))
            return low - AROUND, min(now, span[1] + AROUND) if span[1] < now else now
    end = end or now
    start = start or end - timedelta(days=1)
    if start >= end:
        raise Usage(f"until ({end:%Y-%m-%d %H:%M:%S}) is not after since ({start:%H:%M:%S})")
    return start, end


def _spans(
    services: Services,
    kind: EntityKind,
    named: str,
    start: datetime,
    end: datetime,
    then: datetime | None,
) -> tuple[list[LeaseSpan], datetime | None]:
    if kind not in ("ip", "mac", "host"):
        return [], None
    asked: dict[str, Any] = {kind: named}
    return lease_spans(services.reader, since=start, until=end, known_by=then, **asked)


def _alerts(
    services: Services,
    kind: EntityKind,
    named: str,
    start: datetime,
    end: datetime,
    then: datetime | None,
) -> list[dict[str, Any]]:
    if kind == "ip":
        return entity_lanes.address_alerts(services.reader, named, start, end, then)
    return entity_lanes.alerts_as_known(services.reader, kind, named, start, end, then)


def _of_tenant(whole: Services, services: Services, tenant: str) -> Services:
    """What works for one tenant's rows alone; raises `Usage` for one that the caller has not."""
    mine = services.reader.tenants
    known = services.settings.tenants if mine is None else mine
    return whole.limited.services(whole, listed_tenants([tenant], known, "tenant"))


def _owners(
    spans: list[LeaseSpan], counts: list[dict[str, Any]], alerts: list[dict[str, Any]]
) -> list[str]:
    """Whose what the page shows is, by name; '': nobody's."""
    named = {owner_of(span.scope) or "" for span in spans}
    named |= {alert["tenant_uid"] or "" for alert in alerts}
    named |= {name for row in counts for name in row["tenants"]}
    return sorted(named)


def _lanes(
    kind: str,
    start: datetime,
    end: datetime,
    spans: list[LeaseSpan],
    counts: list[dict[str, Any]],
    alerts: list[dict[str, Any]],
    then: datetime | None,
    tenant: str,
) -> Picture:
    scale = Scale(start, end, WIDTH)
    lanes = []
    # By scope as well: two sites or tenants may have the same address, or the same device.
    by_row: dict[tuple[str, str], list[LeaseSpan]] = defaultdict(list)
    for span in spans:
        by_row[_row_of(kind, span), span.scope].append(span)
    drawn = set(sorted(by_row, key=lambda row: by_row[row][-1].end)[-_LEASE_LANES:])
    several = len({span.scope for span in spans}) > 1
    of_tenant = f"?{urlencode({'tenant': tenant})}" if tenant else ""
    for number, (row, scope) in enumerate(row for row in by_row if row in drawn):
        held = by_row[row, scope]
        name = next((s.hostname for s in reversed(held) if s.hostname), None)
        label = name if kind == "ip" else row
        note = scope if several else row if kind == "ip" and name else "leased"
        href = f"/entity/{'mac' if kind == 'ip' else 'ip'}/{row}{of_tenant}"
        bars = [
            scale.bar(
                s.start, s.end, label or row,
                f"{s.hostname or s.mac} held {s.ip} from {s.start:%Y-%m-%d %H:%M:%S} to "
                f"{s.end:%Y-%m-%d %H:%M:%S} UTC",
                number % 4 + 1, href,
            )
            for s in held
        ]  # fmt: skip
        lanes.append(Lane(label or row, note, bars))
    width = scale.x(start + entity_lanes.lane_step(start, end)) - scale.x(start)
    for lane in LANES:
        rows = [row for row in counts if row["lane"] == lane]
        if rows:
            lanes.append(_counted(scale, lane, rows, width))
    marks = [
        TimeMark(
            scale.x(alert["event_time"]), 4.5 + alert["severity_id"] * 0.4,
            f"{alert['level']}: {alert['rule_name']}", f"l{severity_of_level(alert['level'])}",
            f"/alerts/{alert['alert_id']}",
        )
        for alert in alerts
    ]  # fmt: skip
    if marks:
        lanes.append(Lane("Alerts", f"{len(marks)} in this time", marks=marks, strong=True))
    lines = [(then, f"as known at {then:%Y-%m-%d %H:%M:%S} UTC")] if then else []
    return picture(scale, lanes, [line for line in lines if start <= line[0] <= end])


def _row_of(kind: str, span: LeaseSpan) -> str:
    """What a lane of leases is of: who held the address, or which address was held."""
    return span.mac if kind == "ip" else span.ip


def _risk(alerts: list[dict[str, Any]], named: str) -> int | None:
    """The highest risk that an alert about it tells which is not closed; None without one."""
    about = (a for a in alerts if a["entity_value"] == named and a["lifecycle"] != "closed")
    return max((alert["risk_score"] for alert in about), default=None)


def _counted(scale: Scale, lane: str, rows: list[dict[str, Any]], width: float) -> Lane:
    """Counts as marks: the more, the larger; those with failures stand out."""
    most = max(row["n"] for row in rows)
    marks = [
        TimeMark(
            scale.x(row["bucket"]) + width / 2,
            # By the root, so that the area shows the count: twice the radius looks four times as
            # large.
            2.2 + 5.5 * (row["n"] / most) ** 0.5,
            f"{_events(row['n'])} at {row['bucket']:%Y-%m-%d %H:%M:%S} UTC"
            + (f", {row['failed']} failed" if row["failed"] else ""),
            # Some logins fail everywhere: what stands out is where most do.
            "failed" if row["failed"] * 2 > row["n"] else "some",
        )
        for row in rows
    ]
    return Lane(lane, _events(sum(row["n"] for row in rows)), marks=marks)


def _events(number: int) -> str:
    return f"{number:,} {'event' if number == 1 else 'events'}"


def _quietly(ask: Any, *arguments: Any) -> Any:
    """The answer, or None where the question has none (an address of several sites)."""
    try:
        return ask(*arguments)
    except HeadgateError:
        return None
