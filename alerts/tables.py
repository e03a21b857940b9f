"""Findings and alerts: what a rule saw, and what we sent to people."""

from __future__ import annotations

from datetime import timedelta

from enrich.tables import HOLDER
from infra.delta.column_types import ListOf, MapOf
from infra.delta.schema import STRINGS, TENANT, TS, B, Column, D, L, N, S, Table, View, struct

FINDING = Table(
    name="gold.finding",
    doc="A rule matched an event, or a correlation matched findings. Always all of them.",
    columns=(
        Column("finding_id", S, "hash of rule and event, the same whenever it is computed"),
        Column("rule_id", S, "id of the rule; '_heartbeat' rows are hidden by the views"),
        Column("rule_version", S, "content hash of the rule"),
        Column("rule_title", S, "its title"),
        Column("level", S, "informational, low, medium, high or critical"),
        Column(
            "kind", S, "event (a Sigma rule or a query), correlation, or model (a device's hour)"
        ),
        Column("pack", S, "hash of the rule pack that found it"),
        Column("feeds", STRINGS, "correlations of that pack that count this finding", False),
        Column("alerting", B, "whether it may become an alert by itself"),
        Column(
            "event_uid",
            S,
            "event that matched; for a correlation or a window: hash of group and anchor",
        ),
        Column("event_time", TS, "when that happened, UTC"),
        Column("received_at", TS, "when the newest line it rests on was received, UTC"),
        Column("window_start", TS, "correlation: first finding of the window, UTC", False),
        Column("class_uid", N, "OCSF class of the event", False),
        Column("source", S, "source of the event"),
        Column("mode", S, "live, replay or import"),
        Column("role", S, "which endpoint the rule is about: src_endpoint, device, ..."),
        Column("scope", S, "site or server the address belongs to", False),
        Column("ip", S, "address to be attributed; null when there is none", False),
        Column("host_name", S, "host of the event", False),
        Column("user_name", S, "user of the event", False),
        Column("dst_ip", S, "destination of the event", False),
        Column("holder", HOLDER, "correlation: the device it was grouped by, already known", False),
        Column("fields", MapOf(S, S), "values that matched, group values", False),
        Column("snippet", S, "one line a person can read", False),
        Column(
            "evidence",
            ListOf(struct(event_uid=S, time=TS, snippet=S)),
            "correlation: the events it rests on, at most ten",
            False,
        ),
        Column("evidence_total", L, "how many they were", False),
        Column(
            "answer_by",
            TS,
            "where a preliminary alert was made of it: until when that is answered, UTC",
            False,
        ),
        TENANT,
    ),
    event_time="event_time",
    key=("finding_id",),
    cluster_by=("event_time", "rule_id"),
    stats=("finding_id", "rule_id", "event_time", "event_uid", "ip", "level", "kind", "mode"),
    expires="gold_days",
)

ALERT = Table(
    name="gold.alert",
    doc="One revision of an alert, as it went to the topic. Written by the job `alert` alone.",
    columns=(
        Column("alert_id", S, "hash of tenant, rule and first event; never changes"),
        Column(
            "revision",
            N,
            "1 for the first, then counting up; after a restore numbers may be left out",
        ),
        Column("activity", S, "create, update or close"),
        Column(
            "reason",
            S,
            "why this revision: first, count, attribution, superseded, closed, ...",
            False,
        ),
        Column("tenant", S, "whose platform"),
        Column("mode", S, "live or backfill"),
        Column("rule_id", S, "rule"),
        Column("rule_name", S, "its title"),
        Column("level", S, "its level"),
        Column("severity_id", N, "OCSF severity"),
        Column("risk_score", N, "0 to 100"),
        Column("entity_type", S, "device, ip, user, host, rule or event"),
        Column("entity_value", S, "MAC address, address, user name or host name"),
        Column("src_ip", S, "address the event came from", False),
        Column("event_time", TS, "newest event, UTC"),
        Column("window_start", TS, "first event, UTC"),
        Column("window_end", TS, "newest event, UTC"),
        Column("received_at", TS, "when the newest line it rests on was received, UTC"),
        Column("status", S, "leased, none, outside or unknown: what the attribution rests on"),
        Column("count", L, "findings folded into it"),
        Column("dedup_key", S, "rule and entity; repeats inside the window fold into one alert"),
        Column("title", S, "what a person reads first"),
        Column("previous_entity", S, "attribution revision: the entity it named before", False),
        Column("body", S, "the whole alert as JSON, as published (docs/reference/alert.md)"),
        Column("pack", S, "rule pack that found it"),
        Column("suppressed_by", S, "why it is not on the topic: suppression, or 'budget'", False),
        Column("incident_id", S, "incident of its entity that was open then: an alert_id", False),
        Column("batch", L, "batch of job `alert` that wrote it, as in ops.ledger", False),
        Column("sequence", L, "its batch's place in the feed: grows from batch to batch", False),
        Column("summary", S, "what was seen, with its URL, command line or query, and why", False),
        Column(
            "tenant_uid",
            S,
            "whose events all of its evidence is (`tenants`); null: nobody's in particular",
            False,
        ),
    ),
    event_time="event_time",
    key=("alert_id", "revision"),
    cluster_by=("event_time",),
    stats=(
        *("alert_id", "revision", "rule_id", "level", "entity_value", "event_time", "status"),
        *("suppressed_by", "incident_id", "sequence"),
    ),
    # The publisher reads the files its commits added, from a place that only the broker knows:
    # as far back as the log is told, beyond which it refuses anyway.
    kept=timedelta(days=30),
    expires="gold_days",
)

PRELIMINARY_ANSWER = Table(
    name="gold.preliminary_answer",
    doc="What became of a preliminary alert (`kafka.preliminary_topic`). Written by job `alert`.",
    columns=(
        Column("alert_id", S, "the preliminary alert"),
        Column("finding_id", S, "the finding that it told"),
        Column("rule_id", S, "its rule"),
        Column("answer", S, "confirmed, merged or withdrawn"),
        Column("merged_into", S, "merged: alert_id of the alert that it counts on", False),
        Column("revision", N, "revision of its alert, or of that one, with it", False),
        Column(
            "reason",
            S,
            "withdrawn: suppressed, budget or not_meant (the rule fails)",
            False,
        ),
        Column("answer_by", TS, "until when it was to be answered, UTC"),
        Column("answered_at", TS, "when it was, UTC"),
    ),
    event_time="answered_at",
    # A finding that comes back for a correction may be answered again: the first answer counts.
    key=("alert_id", "answered_at"),
    cluster_by=("answered_at",),
    expires="gold_days",
)

ALERT_ACTION = Table(
    name="gold.alert_action",
    doc="What a person asks: close, assign, judge an alert; suppress alerts to come. "
    "Job `alert` heeds it.",
    columns=(
        Column("action_id", S, "identity of the request"),
        Column("alert_id", S, "alert, or suppression"),
        Column("rule_id", S, "its rule; of a suppression: pattern of a rule's id or title"),
        Column("action", S, "close, reopen, assign, verdict, note, suppress or unsuppress"),
        Column("value", S, "assignee, verdict, or owner of a suppression", False),
        Column("comment", S, "why", False),
        Column("who", S, "name of the key or user"),
        Column("at", TS, "when, UTC"),
        Column("entity", S, "suppression: pattern of the entity, or network", False),
        Column("fields", MapOf(S, S), "suppression: pattern by field", False),
        Column("expires_at", TS, "suppression: findings that arrive from then on are told", False),
        Column(
            "alert",
            S,
            "body of the alert's newest revision, where the job may have forgotten it",
            False,
        ),
    ),
    event_time="at",
    key=("action_id",),
)

CASE_ACT = Table(
    name="ops.case_act",
    doc="What a person did to a case: opened it, linked alerts, noted, merged, closed.",
    columns=(
        Column("act_id", S, "identity of the act"),
        Column("case_id", S, "the case"),
        Column("act", S, "open, title, assign, close, reopen, note, link, unlink or merge"),
        Column("value", S, "title, assignee, outcome, or the case that it is merged into", False),
        Column("comment", S, "what was noted with it", False),
        Column("alert_ids", STRINGS, "alerts that were linked or taken out", False),
        Column("who", S, "name of the key or user"),
        Column("at", TS, "when, UTC"),
    ),
    event_time="at",
    key=("act_id",),
)

HEARTBEAT = "_heartbeat"
"""`rule_id` of the row that says how far detection has finished its input."""

RULE_COST = Table(
    name="ops.rule_cost",
    doc="What rules cost one worker of detection in about a minute (`headgate rules cost --live`).",
    columns=(
        Column("at", TS, "when it was told, UTC"),
        Column("pack", S, "hash of the rule pack"),
        Column("worker", S, "host and process"),
        Column("seconds", D, "time since the worker told before"),
        Column("events", L, "rows it matched meanwhile"),
        Column("match_us", L, "time spent matching all rules, microseconds"),
        Column(
            "rules",
            MapOf(S, struct(events=L, candidates=L, hits=L, us=L)),
            "by rule: events of its log source, those confirmed one by one, hits, and the "
            "microseconds that took; rules without candidates are left out",
        ),
    ),
    event_time="at",
    cluster_by=("at",),
    expires="ops_days",
)

DEVICE_HOUR = Table(
    name="gold.device_hour",
    doc="What a batch of job `models` added to a device's hour, for a rule of kind model; the sum "
    "over an hour's rows is what the model judged. Only devices that the model knows.",
    columns=(
        Column("rule_id", S, "rule of kind model"),
        Column("model", S, "hash of the model that judged"),
        Column("entity", S, "device|MAC, ip|scope|address or host|name"),
        Column("hour", TS, "start of the hour, UTC"),
        Column("events", L, "events that this batch added"),
        Column("bytes_out", L, "bytes sent that it added"),
        Column("bytes_in", L, "bytes received that it added"),
        Column("event_time", TS, "newest of these events, UTC"),
        Column("received_at", TS, "when the newest of them was received, UTC"),
        Column("score", D, "score of the hour with this batch"),
        Column("told", B, "whether this batch made the finding of the hour"),
        Column(
            "top",
            ListOf(struct(bytes=L, time=TS, event_uid=S, snippet=S)),
            "largest of these events; for a rule of steps the rarest of its steps",
            False,
        ),
    ),
    event_time="hour",
    cluster_by=("hour",),
    stats=("rule_id", "entity", "hour", "received_at"),
    expires="silver_days",
)

TABLES = (FINDING, ALERT, PRELIMINARY_ANSWER, ALERT_ACTION, CASE_ACT, RULE_COST, DEVICE_HOUR)
VIEWS = (
    View(
        "gold.findings",
        "Findings without heartbeats",
        f"SELECT * FROM gold.finding WHERE rule_id <> '{HEARTBEAT}'",
    ),
    View(
        "gold.alert_current",
        "The newest revision of each alert",
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY alert_id ORDER BY revision DESC)"
        " AS nth FROM gold.alert) newest WHERE nth = 1",
    ),
    View(
        "gold.suppression",
        "Suppressions, with when and by whom each was ended before its time",
        "SELECT a.alert_id AS suppression_id, a.rule_id AS rule, a.entity, a.fields, "
        "a.value AS owner, a.comment AS reason, a.who, a.at, a.expires_at, "
        "e.ended_at, e.ended_by FROM gold.alert_action a LEFT JOIN (SELECT alert_id, "
        "min(u.at) AS ended_at, min(u.who) AS ended_by FROM gold.alert_action u "
        "WHERE action = 'unsuppress' GROUP BY alert_id) e ON a.alert_id = e.alert_id "
        "WHERE a.action = 'suppress'",
    ),
    View(
        "gold.attribution_current",
        "The newest attribution of each finding",
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY finding_id, role "
        "ORDER BY rev DESC, attributed_at DESC) AS nth FROM gold.attribution "
        "WHERE via <> 'heartbeat') newest WHERE nth = 1",
    ),
)
