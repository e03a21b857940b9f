"""Jobs `ingest` with detection, and `alert`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from alerts.compiler.enrichment_predicates import INVENTORIES
from alerts.correlation.correlator import SETTLE
from alerts.delivery.publisher import Publisher
from alerts.domain.finding import finding_schema
from alerts.lifecycle.holder_confidence import DHCP_SERVERS_DECISION as SERVERS
from alerts.lifecycle.holder_confidence import Listening
from alerts.lifecycle.payloads import (
    ATTRIBUTED,
    OUTPUTS,
    REFUSED,
    Outputs,
    decode_payload,
    to_payload,
)
from alerts.lifecycle.republish_guard import REPUBLISH_DECISION as HEARD
from alerts.lifecycle.risk_score import INCIDENT, RISK
from alerts.lifecycle.stateful_operator import PASSING, SAID_ELSEWHERE, fold_alerts
from alerts.lifecycle.suppression import SUPPRESS, UNSUPPRESS
from alerts.matching.cost_metering import meter_of
from alerts.rulebook.rule_store import rule_store
from alerts.rulepack.rule_pack import PackStore
from alerts.spark_rules.live import Queries
from alerts.tables import ALERT, ALERT_ACTION, FINDING, HEARTBEAT
from enrich.assets.index_store import index_file, latest_index
from enrich.attribution.attributed_events import event_row, is_event
from enrich.attribution.attributed_events import waiting_events as waiting_events
from enrich.attribution.stream_join import SLACK_SECONDS, attribute, split
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT
from infra.config.settings import ScopeSettings, Settings
from infra.delta.parquet_writer import collected
from infra.errors import HeadgateError, Retryable
from infra.process.log import News
from infra.streaming.job import Batch, Job
from infra.streaming.lake import Lake
from infra.streaming.outbox import put_row
from ingest.pipeline.batch_pass import Find, Stage
from ingest.pipeline.files_job import files
from ingest.pipeline.ingest_job import Step, ingest
from ingest.tables import EVENT
from ingest.tables import HEARTBEAT as EVENT_HEARTBEAT


def ingest_and_detect(lake: Lake, *, once: bool = False) -> Job:
    """Job `ingest` with detection handed over as a step of its batch."""
    return ingest(lake, steps=[detect(lake, rule_store(lake.settings))], once=once)


def files_and_detect(lake: Lake, *, once: bool = False) -> Job:
    """Job `files` with detection handed over as a step of its batch."""
    return files(lake, steps=[detect(lake, rule_store(lake.settings))], once=once)


def detect(lake: Lake, store: PackStore) -> Step:
    """A step that matches a batch's events against the rules in force when it first ran."""

    # Outside of `step`: it remembers from batch to batch which windows were looked at.
    queries = Queries(lake, store)

    def step(run: Batch) -> Stage:
        # Rules may change between two tries of a batch.
        pack = run.decide("pack", store.current)
        spool = str(lake.spool / "rule_cost")
        find = partial(detection, str(store.folder), pack, spool)
        settings = lake.settings
        events_wait = bool(settings.jobs.attributed_classes)
        more = partial(queries, pack=pack)
        return Stage(FINDING, find, more, due_after(settings), events_wait)

    return step


def due_after(settings: Settings) -> tuple[float, ...]:
    """In how many seconds after a finding time must have moved on, if no alert is to be late.

    Once for who has no lease, once for correlations that wait until their window has closed, and
    once for an alert that counts. Ticks that come seldom would be late by half a minute.
    """
    jobs = settings.jobs
    waits = jobs.wait_seconds + jobs.watermark_seconds + SLACK_SECONDS
    settled = SETTLE / 1_000_000
    return (waits, waits + settled, waits + settings.alerts.count_every_seconds)


def detection(store_folder: str, pack: str, spool: str) -> Find:
    """Findings of a rule pack among events, and ingest's heartbeats as those of detection.

    `spool`: where it tells what rules cost.
    """
    matcher = meter_of(store_folder, pack, spool)

    def find(events: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        return matcher.match(events), heartbeats(events, pack)

    return find


def heartbeats(events: pa.RecordBatch, pack: str) -> pa.RecordBatch:
    """Ingest's heartbeats among the events as heartbeats of detection."""
    beats = events.filter(pc.equal(events.column("source"), EVENT_HEARTBEAT))
    rows = [
        {
            "finding_id": uid,
            "rule_id": HEARTBEAT,
            "event_time": position,
            "received_at": received_at,
            "mode": mode,
            "pack": pack,
        }
        for uid, position, received_at, mode in zip(
            *(
                beats.column(name).to_pylist()
                for name in ("event_uid", "time", "received_at", "mode")
            ),
            strict=True,
        )
    ]
    return pa.RecordBatch.from_pylist(rows, schema=finding_schema())


def alert(lake: Lake, *, once: bool = False) -> Job:
    """Findings and segments -> who it was -> alerts -> the topic.

    One query: the stream-stream join's rows go straight into the state that
    correlates and folds, and what the batch commits is published at once.
    """
    settings = lake.settings
    store = rule_store(settings)
    outgoing = Outgoing(settings)
    servers = Listening(settings)
    # One query for all: a table between two queries would cost each alert another trigger and
    # commit.
    outputs = fold_alerts(alert_input(lake), settings, str(store.folder))

    def batch(rows: DataFrame, run: Batch) -> None:
        outgoing.begin()
        run.decide(SERVERS, servers.current)
        # A batch that was cut off may have committed some of its tables; these must not get it
        # twice.
        wanted = [table for table in OUTPUTS.values() if not lake.has(table, run)]
        # Rows that are there already have the numbers that they have.
        run.decide(HEARD, lambda: outgoing.heard_by() if ALERT in wanted else None)
        # Decided, for an import between two tries would put other owners on the same alert.
        known = index_file(lake, run.decide(INVENTORIES, lambda: latest_index(lake)))
        # A retry must give the feed the same cursor.
        sequence = run.decide("sequence", lambda: lake.version(ALERT) + 1)
        targets = {table.name: lake.target(table, run) for table in wanted}
        work = Outputs(targets, run.batch_id, sequence, known)
        written = collected(rows, work)
        for table in wanted:
            files = [file for file in written if file.table == table.name]
            # A commit without rows would wake every reader of the table for nothing.
            if files:
                lake.commit(table, run, files)
        if run.rows.get(FINDING.name):
            run.due_after = due_after(settings)
        note_refused(lake, [file.stats for file in written if file.table == REFUSED])
        # Last: what goes out is in the table already.
        outgoing.publish(run)

    trigger = None if once else settings.jobs.alert_trigger_seconds
    return lake.each_batch("alert", outputs, batch, trigger_seconds=trigger, begun=outgoing.first)


class Outgoing:
    """Publishes what is committed: at the start of the job what lies ready, then after each batch.

    A broker that is away now is tried again at the next batch. The alerts lie in the table and the
    publisher's place with the broker, so waiting loses nothing, while failing the batch would hold
    up all later ones. What lasts is seen by the job's target (`headgate status`, `/readyz`).
    """

    def __init__(self, settings: Settings) -> None:
        self._publisher, self._news = Publisher(settings), News()
        self._lock = threading.Lock()

    def first(self) -> None:
        """Send what an earlier run left, beside the query that begins: its first batch takes long.

        What is wrong here, the first batch says.
        """

        def send() -> None:
            with suppress(HeadgateError), self._lock:
                self._publisher.publish()

        threading.Thread(target=send, name="alerts", daemon=True).start()

    def begin(self) -> None:
        """Before anything is written: what the table held before this run must be known first."""
        with self._lock:
            self._publisher.begin()

    def heard_by(self) -> str | None:
        """Name of the file with what consumers had before a restore; None where none was."""
        with self._lock:
            return self._publisher.heard_by()

    def publish(self, run: Batch) -> None:
        """Send what the table holds; where that cannot be done now, the batch says so."""
        try:
            with self._lock:
                self._publisher.publish()
        except Retryable as error:
            # The batch counts as done, and the status shows what waits.
            run.held_back = str(error)
            self._news.tell(
                f"job alert: {error}; they stay in gold.alert and go out with the next batch"
            )
        else:
            self._news.over()


def note_refused(lake: Lake, requests: Iterable[str]) -> None:
    """Put requests that came to nothing into ops.audit, each once under its own id."""
    for payload in requests:
        asked = decode_payload(payload, ALERT_ACTION.schema)
        put_row(
            lake.spool / "audit",
            f"refused-{asked['action_id']}",
            {
                "at": asked["at"].isoformat(),
                "who": asked["who"],
                "act": f"alert.{asked['action']}",
                "target": asked["alert_id"],
                "detail": asked["reason"],
                "outcome": "refused",
            },
        )


def alert_input(lake: Lake) -> DataFrame:
    """All that the alert state must see, as rows `(kind, targets, payload)`."""
    settings = lake.settings
    # An import of old logs raises no live alerts.
    findings = lake.stream(FINDING, job="alert").where("mode <> 'import'")
    waiting, passing = split(findings, settings.scopes)
    # Also where no class is chosen its heartbeats come: a checkpoint has the same sources either
    # way. A stream of nothing in their place makes Spark fail where the findings have a pause.
    events = waiting_events(
        lake.stream(EVENT, job="alert"), settings.jobs.attributed_classes, FINDING.schema
    )
    attributed = attribute(waiting, lake.stream(DHCP_SEGMENT, job="alert"), settings.jobs, [events])
    where = lake.stream(ATTRIBUTION, job="alert").where("finding IS NOT NULL")
    asked = lake.stream(ALERT_ACTION, job="alert")
    return (
        to_state(attributed, settings.scopes)
        .unionByName(to_state(passing))
        .unionByName(_retold(where))
        .unionByName(
            asked.select(
                F.lit("action").alias("kind"),
                # A suppression concerns every rule that its pattern fits.
                F.when(~F.col("action").isin(SUPPRESS, UNSUPPRESS), F.array("rule_id")).alias(
                    "targets"
                ),
                to_payload("*").alias("payload"),
            )
        )
    )


def to_state(findings: DataFrame, scopes: Sequence[ScopeSettings] = ()) -> DataFrame:
    """Attributed findings for the state; a heartbeat is a tick for every bucket.

    Attributed events go by it as rows of gold.attributed_event, to no bucket.

    A finding concerns its rule, the correlations that count it and the risk of its
    entity. Every bucket learns of an incident, and of a correction: it may hold the
    risk of the entity that the finding counted for before.
    """
    beat = F.col("rule_id") == HEARTBEAT
    own = F.array_distinct(
        F.array_compact(
            F.concat(F.array("rule_id"), F.coalesce("feeds", F.array()), F.array(risk_target()))
        )
    )
    # Which bucket has the risk of the former entity nobody knows here, so all of them are told.
    every = (F.col("rule_id") == INCIDENT) | F.col("via").isin(*SAID_ELSEWHERE)
    nobody = F.array(F.lit(None).cast("string"))
    event, own_kind = is_event(), F.when(beat, "tick").otherwise("finding")
    event_kind = F.when(beat, PASSING).otherwise(ATTRIBUTED)
    return findings.select(
        F.when(event, event_kind).otherwise(own_kind).alias("kind"),
        F.when(~beat & ~event, F.when(every, F.concat(own, nobody)).otherwise(own)).alias(
            "targets"
        ),
        F.when(event, to_payload(*event_row(scopes))).otherwise(to_payload("*")).alias("payload"),
    )


def risk_target() -> Column:
    """The bucket target for the risk of a finding's entity, as `entity_of` names it.

    Null for an incident, and for what names no device, address, host or user.
    """
    # The same order as in `entity_of`: finding and risk must mean the same entity.
    leased = (F.col("holder.status") == "leased") & (F.col("holder.mac") != "")
    key = (
        F.when(leased, F.concat(F.lit("device|"), "holder.mac"))
        .when(
            F.col("ip") != "",
            F.concat(F.lit("ip|"), F.coalesce("scope", F.lit("")), F.lit("|"), "ip"),
        )
        .when(F.col("host_name") != "", F.concat(F.lit("host|"), "host_name"))
        .when(F.col("user_name") != "", F.concat(F.lit("user|"), "user_name"))
    )
    return F.when(F.col("rule_id") != INCIDENT, F.concat(F.lit(f"{RISK}|"), key))


def _retold(attributions: DataFrame) -> DataFrame:
    """Findings that job `repair` attributed anew, in the shape of the state's own.

    `alert`: the alert that a finding counts on, where the state may have forgotten it.
    """
    # With today's schema: rows of an older release lack columns, which become null.
    finding = F.from_json("finding", FINDING.schema)
    rows = attributions.select(
        finding.alias("f"),
        F.col("holder").alias("h"),
        F.col("rev").alias("attr_rev"),
        "via",
        F.get_json_object("finding", "$.alert").alias("alert"),
    )
    columns = [name for name in FINDING.schema.fieldNames() if name != "holder"]
    return rows.select(
        *[F.col(f"f.{name}") for name in columns],
        F.col("h").alias("holder"),
        "attr_rev",
        "via",
        "alert",
    ).transform(to_state)
