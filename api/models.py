"""What goes over the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Value = str | int | float | bool | None


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
    """The lake can be read and the jobs write."""

    status: Literal["ready"] = "ready"
    newest_batch_age_seconds: float = Field(
        description="age of the newest batch in ops.ledger", examples=[4.2]
    )


class Entity(_Model):
    """Whom an alert is about."""

    type: str = Field(description="device, ip, host, user, rule or event", examples=["device"])
    value: str = Field(
        description="MAC address, address, host or user name", examples=["02:00:00:00:00:07"]
    )


class Alert(_Model):
    """The newest revision of an alert, in short."""

    alert_id: str = Field(description="never changes", examples=["9f2c4e5d8a7b6c1d"])
    revision: int = Field(description="1 for the first, then counting up", examples=[2])
    activity: str = Field(description="create, update or close", examples=["update"])
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
    status: str = Field(
        description="what the attribution rests on: leased, none, outside or unknown",
        examples=["leased"],
    )
    count: int = Field(description="findings folded into it", examples=[12])
    title: str = Field(description="what a person reads first")


class AlertPage(_Model):
    """Alerts, newest first by the time of their first revision."""

    items: list[Alert]
    next: str | None = Field(description="cursor of the next page; null on the last")


class Revision(_Model):
    """One revision of an alert, in short."""

    revision: int
    activity: str
    reason: str | None
    event_time: datetime
    entity: Entity
    previous_entity: str | None
    status: str
    count: int


class AlertDetail(_Model):
    """An alert: its newest revision whole, as it went to the topic, and all revisions in short."""

    alert: Alert
    body: dict[str, Any] = Field(description="the whole newest revision (docs/alert.md)")
    revisions: list[Revision] = Field(description="oldest first")


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
    rev: int = Field(description="grows with every statement about this address")
    evidence: list[str] = Field(description="event_uid of the DHCP lines it rests on")
    ended: str | None = Field(description="why the span ends, if it is known")


class Holder(_Model):
    """Who held an address at an instant."""

    ip: str
    at: datetime
    scope: str | None = Field(description="site the address belongs to", examples=["default"])
    status: Literal["leased", "none"] = Field(
        description="none: no lease covered it, as far as the DHCP log is complete"
    )
    lease: Lease | None
    complete_up_to: datetime | None = Field(
        description="how far the DHCP log is known; null: no DHCP log was read yet"
    )


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


class Timeline(_Model):
    """What is known about an entity, newest first."""

    entity: Entity
    items: list[TimelineItem]
    next: str | None = Field(description="cursor of the next page; null on the last")


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
    params: dict[str, Value] = Field(
        default_factory=dict, max_length=100, description="values for :name in the statement"
    )
    max_rows: int | None = Field(
        None, ge=1, description="most rows wanted; the server's own limit stays"
    )


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
    engine: str = Field(examples=["duckdb"])


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
    columns: list[TableColumn] = Field(default_factory=list, description="of a table")


class Catalog(_Model):
    """All tables and views."""

    tables: list[CatalogTable]


Problem.model_rebuild()
