"""What goes over the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.sql.runner import Engine
from api.wire.moment import Moment

_Value = str | int | Annotated[float, Field(allow_inf_nan=False)] | bool | None


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(_Model):
    """An error, as RFC 9457 has it (application/problem+json)."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:headgate:problem:not-found",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "no alert 'd41d8c'; list them with GET /api/v1/alerts",
                    "instance": "/api/v1/alerts/d41d8c",
                }
            ]
        },
    )

    type: str = Field(description="what kind of problem, stable for programs")
    title: str = Field(description="the kind in words")
    status: int = Field(description="HTTP status")
    detail: str = Field(description="what is wrong here, and the way out")
    instance: str = Field(description="path of the request")
    errors: list[FieldProblem] | None = Field(None, description="each wrong field of the request")


class FieldProblem(_Model):
    """One wrong field of a request."""

    where: str = Field(description="query, path or body, and the field", examples=["query.limit"])
    message: str = Field(description="what is wrong with it")


class Health(_Model):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(_Model):
    """The lake can be read and every job makes progress."""

    status: Literal["ready"] = "ready"
    since_batch_seconds: float | None = Field(
        description="seconds since any job last finished a batch", examples=[4.2]
    )
    newest_batch_age_seconds: float | None = Field(
        description="the former name of `since_batch_seconds`; gone with the next release",
        examples=[4.2],
        deprecated=True,
    )
    jobs: dict[str, float] = Field(
        description="seconds since each job last made progress", examples=[{"ingest": 0.8}]
    )


class Entity(_Model):
    """Whom an alert is about."""

    type: str = Field(description="device, ip, host, user, rule or event", examples=["device"])
    value: str = Field(
        description="MAC address, address, host or user name", examples=["02:00:00:00:00:07"]
    )


class AlertSummary(_Model):
    """The newest revision of an alert, in short."""

    alert_id: str = Field(description="never changes", examples=["9f2c4e5d8a7b6c1d"])
    revision: int = Field(description="1 for the first, then counting up", examples=[2])
    alert_status: str = Field(description="triage status: new, triaged or closed", examples=["new"])
    change_type: str = Field(
        description="what this revision did: create, update or close", examples=["update"]
    )
    activity: str = Field(
        description="the former name of `change_type`; gone with the next release",
        examples=["update"],
        deprecated=True,
    )
    reason: str | None = Field(description="why this revision", examples=["attribution"])
    mode: str = Field(description="live or backfill", examples=["live"])
    rule_id: str = Field(description="rule that found it")
    rule_name: str = Field(description="its title", examples=["SSH password guessing"])
    level: str = Field(description="low, medium, high or critical", examples=["high"])
    severity_id: int = Field(description="OCSF severity", examples=[4])
    risk_score: int = Field(description="0 to 100", examples=[70])
    entity: Entity
    previous_entity: str | None = Field(description="entity it named before a correction")
    src_ip: str | None = Field(description="address the event came from", examples=["10.0.0.7"])
    first_event_time: datetime = Field(description="newest event of revision 1; the page order")
    event_time: datetime = Field(description="newest event, UTC")
    window_start: datetime = Field(description="first event, UTC")
    window_end: datetime = Field(description="newest event, UTC")
    attribution_status: str = Field(
        description="what the attribution rests on: leased, none, outside, static or unknown",
        examples=["leased"],
    )
    status: str = Field(
        description="the former name of `attribution_status`; gone with the next release",
        examples=["leased"],
        deprecated=True,
    )
    count: int = Field(description="findings folded into it", examples=[12])
    title: str = Field(description="what a person reads first")
    suppressed_by: str | None = Field(
        description="why it is not on the topic: a suppression's id, or budget"
    )
    incident_id: str | None = Field(description="incident it led to or was raised in: an alert_id")


class FeedItem(_Model):
    """One revision, as it went to the topic."""

    alert_id: str
    revision: int
    sequence: str = Field(
        description="ce_sequence of the message on the topic", examples=["0000000000000042"]
    )
    body: dict[str, Any] = Field(description="the whole revision (docs/reference/alert.md)")


class FeedPage(_Model):
    """Revisions in the order in which they were committed, behind a cursor."""

    items: list[FeedItem]
    next: str = Field(description="cursor behind the last item; ask with it again for what is new")
    more: bool = Field(description="whether there is more already")


class AlertPage(_Model):
    """Alerts, newest first by the time of their first revision."""

    items: list[AlertSummary]
    next: str | None = Field(description="cursor of the next page; null on the last")


class Revision(_Model):
    """One revision of an alert, in short."""

    revision: int = Field(description="1 for the first, then counting up")
    alert_status: str = Field(description="new, triaged or closed, as it was then")
    change_type: str = Field(description="what this revision did: create, update or close")
    activity: str = Field(description="the former name of `change_type`", deprecated=True)
    reason: str | None = Field(description="why this revision")
    event_time: datetime = Field(description="newest event, UTC")
    entity: Entity
    previous_entity: str | None = Field(description="entity it named before a correction")
    attribution_status: str = Field(description="what the attribution rested on")
    status: str = Field(description="the former name of `attribution_status`", deprecated=True)
    count: int = Field(description="findings folded into it")


class AlertDetail(_Model):
    """An alert: its newest revision whole, as it went to the topic, and all revisions in short."""

    alert: AlertSummary
    body: dict[str, Any] = Field(description="the whole newest revision (docs/reference/alert.md)")
    revisions: list[Revision] = Field(description="oldest first")


class Explanation(_Model):
    """What is behind an alert (docs/how-to/explain-an-alert.md)."""

    alert: dict[str, Any] = Field(description="its newest revision in short")
    rule: dict[str, Any] = Field(description="condition and text; `unchanged`: still in force so")
    matched: list[dict[str, Any]] = Field(description="by event: selections, tests and values")
    attribution: dict[str, Any] = Field(description="as published, with the DHCP lines behind it")
    lineage: dict[str, Any] = Field(description="rule pack, batches and table versions")
    evidence_sql: str = Field(description="Spark SQL that shows the events, for /statements")
    again: dict[str, Any] | None = Field(None, description="what is said of it now, if asked")
    damaged: str | None = Field(
        None,
        description="what is lost where its body cannot be read, and where the text is",
    )


class Lease(_Model):
    """The lease that proves who held an address."""

    mac: str = Field(description="holder", examples=["02:00:00:00:00:07"])
    hostname: str | None = Field(description="name the client gave", examples=["laptop-7"])
    session_id: str | None = Field(description="the lease")
    lease_start: datetime | None = Field(description="when it was granted, UTC")
    lease_end: datetime | None = Field(description="when it ends, as far as is known, UTC")
    span_start: datetime = Field(description="span of this statement about it, UTC")
    span_end: datetime = Field(description="first instant after the span, UTC")
    known_at: datetime = Field(description="stream time at which we learned it, UTC")
    learned_at: datetime = Field(description="arrival of the line we learned it from, UTC")
    rev: int = Field(description="grows with every statement about this address")
    evidence: list[str] = Field(description="event_uid of the DHCP lines it rests on")
    ended: str | None = Field(
        description="why the span ends; null: not known, or it still ran when complete_up_to was"
    )


class Rival(_Model):
    """Somebody else who could have held the address."""

    kind: Literal["superseded", "before", "after", "elsewhere", "leased"] = Field(
        description="superseded: the log said so and took it back; before, after: within seconds; "
        "elsewhere: the same address in another scope; leased: DHCP gave it an address that is "
        "set by hand"
    )
    scope: str | None
    mac: str | None = Field(examples=["02:00:00:00:00:08"])
    session_id: str | None
    lease_start: datetime | None
    lease_end: datetime | None
    known_at: datetime | None = Field(description="stream time at which we learned it, UTC")
    rev: int | None


class DhcpServer(_Model):
    """A DHCP server of the scope."""

    server: str | None = Field(description="its name or address", examples=["dhcp-1"])
    last_line_at: datetime = Field(description="its newest line up to the instant, UTC")


class AddressHolder(_Model):
    """Who held an address at an instant."""

    ip: str
    at: datetime
    known_by: datetime | None = Field(description="as it was known then; null: as it is known now")
    scope: str | None = Field(description="site the address belongs to", examples=["default"])
    status: Literal["leased", "none", "outside", "static"] = Field(
        description="none: no lease covered it, as far as the DHCP log is complete; outside: it "
        "lies in no DHCP scope; static: it is configured as set by hand"
    )
    lease: Lease | None
    complete_up_to: datetime | None = Field(
        description="how far the DHCP log is known; null: no DHCP log was read yet"
    )
    confidence: int = Field(description="0 to 100 (docs/explanation/attribution.md)", examples=[98])
    certainty: str = Field(description="certain, likely, doubtful or unknown", examples=["certain"])
    reason: str = Field(description="why so sure, one sentence")
    rivals: list[Rival] = Field(
        description="who else could be meant, at most 50; `reason` says of how many"
    )
    servers: list[DhcpServer] = Field(description="the scope's DHCP servers, as far as heard")


class TimelineItem(_Model):
    """One thing that happened to or by an entity."""

    time: datetime
    kind: Literal["event", "finding", "alert", "lease"]
    id: str = Field(description="event_uid, finding_id, alert_id or session_id")
    title: str
    ip: str | None = None
    source: str | None = Field(None, description="source of an event or finding")
    level: str | None = Field(None, description="level of a finding or alert")
    until: datetime | None = Field(None, description="end of a lease, UTC")
    via: str = Field(
        description="own: it names the entity itself; lease: the address was its own then"
    )


class EntityTimeline(_Model):
    """What is known about an entity, newest first."""

    entity: Entity
    items: list[TimelineItem]
    next: str | None = Field(description="cursor of the next page; null on the last")


class AttributedEvent(_Model):
    """An event with the device that held its address then."""

    event_uid: str
    time: datetime
    class_uid: int = Field(description="OCSF class", examples=[3002])
    class_name: str
    source: str
    message: str | None
    scope: str | None = Field(description="site the address belongs to")
    ip: str = Field(description="address the event came from")
    user_name: str | None
    host_name: str | None
    status: Literal["leased", "none", "static", "outside"] = Field(
        description="none: no lease covered it, as known now; outside: no DHCP network has it; "
        "static: set by hand, and with a session_id leased all the same"
    )
    mac: str | None = Field(description="device that held the address")
    hostname: str | None = Field(description="name it gave the DHCP server")
    session_id: str | None = Field(description="the lease")
    lease_start: datetime | None
    lease_end: datetime | None = Field(description="as known now, UTC")
    rev: int | None = Field(description="of the segment it rests on")


class AttributedPage(_Model):
    """Events, newest first."""

    items: list[AttributedEvent]
    next: str | None = Field(description="cursor of the next page; null on the last")


class KnownAsset(_Model):
    """What the inventories said of a device at an instant."""

    asset_id: str
    inventory: str
    name: str | None
    kind: str | None = Field(description="what it is", examples=["laptop"])
    owner: str | None
    criticality: str | None = Field(description="low, medium, high or critical")
    site: str | None
    tags: list[str] | None
    serial: str | None
    matched_by: str = Field(description="mac, serial, hostname, ip or network")


class KnownUser(_Model):
    """What the inventories said of a person at an instant."""

    user_id: str
    inventory: str
    name: str | None = Field(description="account name")
    full_name: str | None
    department: str | None
    title: str | None
    manager: str | None
    mail: str | None
    site: str | None
    criticality: str | None = Field(description="low, medium, high or critical")
    tags: list[str] | None
    matched_by: str = Field(
        description="account: the whole of it; name: the part without its domain"
    )


class KnownAccount(_Model):
    """What the inventories knew of an entity at an instant."""

    entity: Entity
    at: datetime
    asset: KnownAsset | None
    user: KnownUser | None


class SeenDevice(_Model):
    """A user, or a device, that witnesses name, and how much they tell together."""

    name: str = Field(description="account without its domain, or MAC address", examples=["ann"])
    domain: str | None
    uid: str | None = Field(description="the directory's own id, such as a SID")
    strength: int = Field(description="1 to 90; a lease would be 100", examples=[70])
    kinds: list[str] = Field(description="kinds of witness, the strongest first")
    first: datetime = Field(description="the oldest of them, UTC")
    last: datetime = Field(description="the newest of them, UTC")
    evidence: list[str] = Field(description="event_uid of the witnesses, at most ten")
    reason: str = Field(description="what they say, in words")
    user: KnownUser | None = Field(None, description="what the inventories know of the user")


class Witnesses(_Model):
    """Who used an address or a device at an instant, as far as others than DHCP tell."""

    entity: Entity
    at: datetime
    scope: str | None = Field(description="site the address belongs to")
    mac: str | None = Field(
        description="device that held the address, by its lease; null: no lease covers the instant"
    )
    users: list[SeenDevice] = Field(description="the likeliest first")
    devices: list[SeenDevice] = Field(description="devices that Zeek saw the address leased to")
    more: bool = Field(
        description="older events name users, too: only the newest 2,000 were looked at"
    )


ENGINE = (
    "`duckdb` answers at once, and refuses what it would answer otherwise than Spark; `spark` "
    "takes seconds to start and knows all of Spark SQL; `auto`: DuckDB where it answers, else Spark"
)


class Statement(_Model):
    """A question in Spark SQL."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "sql": "SELECT src_ip, count(*) AS n FROM silver.authentication "
                    "WHERE status_id = 2 AND time >= :since GROUP BY src_ip ORDER BY n DESC",
                    "params": {"since": "2026-11-20 00:00:00"},
                    "max_rows": 100,
                }
            ]
        },
    )

    sql: Annotated[str, Field(min_length=1, max_length=100_000)] = Field(
        description="one SELECT, or WITH ... SELECT; tables as layer.name"
    )
    params: dict[str, _Value] = Field(
        default_factory=dict, max_length=100, description="values for :name in the statement"
    )
    as_of: Moment | None = Field(
        None, description="over the tables as they were at this instant, with its zone"
    )
    max_rows: int | None = Field(
        None, ge=1, description="most rows wanted; the server's own limit stays"
    )
    engine: Engine = Field("auto", description=ENGINE)


class ResultColumn(_Model):
    """A column of an answer."""

    name: str
    type: str = Field(description="its Spark type", examples=["bigint"])


class StatementAnswer(_Model):
    """Rows in the order of `columns`; times ISO 8601 UTC, bytes in base64."""

    columns: list[ResultColumn]
    rows: list[list[Any]]
    truncated: bool = Field(description="whether rows are missing at the end")
    truncated_by: Literal["rows", "bytes"] | None = Field(description="the limit that cut it")
    elapsed_ms: float
    engine: Literal["duckdb", "spark"] = Field(description="what answered")
    engine_reason: str = Field(
        description="why that engine", examples=["it answers this as Spark does"]
    )
    versions: dict[str, int] = Field(
        default_factory=dict, description="with `as_of`: the version at which each table was read"
    )


class TableColumn(_Model):
    """A column of a table."""

    name: str
    type: str = Field(description="its Spark type")
    doc: str
    required: bool


class CatalogTable(_Model):
    """A table or view that statements may read."""

    name: str = Field(examples=["silver.event"])
    kind: Literal["table", "view"]
    doc: str
    event_time: str | None = Field(None, description="column to narrow by time")
    key: list[str] = Field(default_factory=list)
    version: int | None = Field(
        None,
        description="newest version of the Delta table, with versions=true; else null",
    )
    columns: list[TableColumn] = Field(
        default_factory=list, description="of a view: what tables say of the same name"
    )


class Catalog(_Model):
    """All tables and views."""

    tables: list[CatalogTable]


Problem.model_rebuild()
