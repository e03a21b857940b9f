"""Job `alert`: findings and leases in, alerts into the table and onto the topic."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from alerts.compiler.enrichment_predicates import INVENTORIES
from alerts.delivery.publisher import LOOK_SECONDS, Publisher
from alerts.lifecycle.alert_json import with_text
from alerts.lifecycle.asset_context import in_context
from alerts.lifecycle.holder_confidence import DHCP_SERVERS_DECISION as SERVERS
from alerts.lifecycle.holder_confidence import ServerWatch
from alerts.lifecycle.payloads import ATTRIBUTED, decode_payload, to_payload, unpack_row
from alerts.lifecycle.republish_guard import REPUBLISH_DECISION
from alerts.lifecycle.risk_score import INCIDENT, RISK
from alerts.lifecycle.stateful_operator import JOINED, PASSING, SAID_ELSEWHERE, fold_alerts
from alerts.lifecycle.suppression import SUPPRESS, UNSUPPRESS
from alerts.matching.detection import due_after
from alerts.rulebook.rule_store import rule_store
from alerts.tables import ALERT, ALERT_ACTION, FINDING, HEARTBEAT, PRELIMINARY_ANSWER
from enrich.assets.index import index_of
from enrich.assets.index_store import index_file, latest_index
from enrich.attribution.attributed_events import is_event, joining_events
from enrich.attribution.stream_join import ROUTED, attribute, fields_of
from enrich.tables import ATTRIBUTED_EVENT, ATTRIBUTION, DHCP_SEGMENT
from infra.config.settings import Settings
from infra.delta.parquet_writer import DataFile, Target, collected, files_written, writing
from infra.delta.schema import Table
from infra.errors import HeadgateError, Retryable
from infra.process.log import News
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from infra.streaming.outbox import put_row
from ingest.tables import EVENT

ANSWER = "answer"

# Alerts behind findings: whoever follows a new one to its findings must find them committed.
OUTPUTS = {
    "attribution": ATTRIBUTION,
    ATTRIBUTED: ATTRIBUTED_EVENT,
    "finding": FINDING,
    "alert": ALERT,
    ANSWER: PRELIMINARY_ANSWER,
}
"""Tables that the state's rows belong to, by `out`, in the order in which they are committed."""

REFUSED = "refused"


def alert(lake: Lake, *, once: bool = False) -> Job:
    """Findings and segments -> who it was -> alerts -> the topic.

    One query: the stream-stream join's rows go straight into the state that
    correlates and folds, and what the batch commits is published at once.
    """
    settings = lake.settings
    store = rule_store(settings)
    outgoing = Outgoing(settings)
    servers = ServerWatch(settings)
    # One query for all: a table between two queries would cost each alert another trigger and
    # commit.
    outputs = fold_alerts(alert_input(lake), settings, str(store.folder))

    def batch(rows: DataFrame, run: Batch) -> None:
        outgoing.begin()
        # A batch that was cut off may have committed some of its tables; these must not get it
        # twice.
        wanted = [table for table in OUTPUTS.values() if not lake.has(table, run)]
        with run.at_once():
            run.decide(SERVERS, servers.current)
            # Rows that are there already have the numbers that they have.
            run.decide(
                REPUBLISH_DECISION,
                lambda: outgoing.published_before_restore() if ALERT in wanted else None,
            )
            # Decided, for an import between two tries would put other owners on the same alert.
            inventories = run.decide(INVENTORIES, lambda: latest_index(lake))
            # A retry must give the feed the same cursor.
            sequence = run.decide("sequence", lambda: lake.version(ALERT) + 1)
        known = index_file(lake, inventories)
        targets = {table.name: lake.target(table, run) for table in wanted}
        work = Outputs(targets, run.batch_id, sequence, known)
        written = collected(rows, work, observed=False)
        by_name = {table.name: [f for f in written if f.table == table.name] for table in wanted}
        answers = by_name.pop(PRELIMINARY_ANSWER.name, [])
        for table in wanted:
            # A commit without rows would wake every reader of the table for nothing.
            if files := by_name.get(table.name):
                lake.commit(table, run, files)
        if run.rows.get(FINDING.name):
            run.due_after = due_after(settings)
        note_refused(lake, [file.stats for file in written if file.table == REFUSED])
        # Behind the commits: what goes out is in the table already.
        outgoing.publish(run)
        # Behind the alerts, which are not to wait for it; job `ingest` hands the answers on.
        if answers:
            lake.commit(PRELIMINARY_ANSWER, run, answers)

    trigger = None if once else settings.jobs.alert_trigger_seconds
    return lake.each_batch("alert", outputs, batch, trigger_seconds=trigger, begun=outgoing.first)


class Outputs:
    """What `mapInArrow` takes: rows `(out, payload)` of the alert state in, the files written out.

    A table that is missing in `targets` has the batch already and is not written.
    `batch` and `sequence` are written on each revision of an alert: the batch's number, and its
    place in the order in which readers get them (`alerts.delivery.feed`).
    `index`: file with the assets and users that alerts are told with, if there are any.
    Requests that were refused come back as rows of table `refused`, the request as stats.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        batch: int | None = None,
        sequence: int | None = None,
        index: str | None = None,
    ) -> None:
        self._targets = dict(targets)
        self._place = {"batch": batch, "sequence": sequence}
        self._index = index

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        refused: list[DataFile | None] = []
        with writing(self._targets) as writers:
            for batch in batches:
                for kind, table in OUTPUTS.items():
                    # After a crash some tables may have the batch already; only the rest is
                    # written.
                    if table.name in writers:
                        rows = self._rows(_payloads(batch, kind), table)
                        schema = self._targets[table.name].schema
                        writers[table.name].write(pa.RecordBatch.from_pylist(rows, schema=schema))
                refused += [
                    # `mapInArrow` has one output schema; requests come back in the shape of files.
                    DataFile(REFUSED, "", 0, 0, 0, payload.decode())
                    for payload in _payloads(batch, REFUSED)
                ]
            yield files_written([*(writer.close() for writer in writers.values()), *refused])

    def _rows(self, payloads: Iterable[bytes], table: Table) -> list[dict[str, Any]]:
        rows = [unpack_row(payload, table.schema) for payload in payloads]
        if table is not ALERT:
            return rows
        known = index_of(self._index) if self._index else None
        # Assets are looked up when the row is written, so a change of them does not touch the
        # state.
        return [with_text(in_context(row, known)) | self._place for row in rows]


def _payloads(batch: pa.RecordBatch, kind: str) -> list[bytes]:
    mine = pc.equal(batch.column("out"), kind)
    payloads: list[bytes] = batch.column("payload").filter(mine).to_pylist()
    return payloads


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

    def published_before_restore(self) -> str | None:
        """Name of the file with what consumers had before a restore; None where none was."""
        with self._lock:
            return self._publisher.published_before_restore()

    def publish(self, run: Batch) -> None:
        """Send what the table holds; what cannot be sent now, the batch says."""
        try:
            with self._lock:
                self._publisher.publish()
                run.held_back = self._publisher.held_back()
            if run.held_back:
                # A person may repair it or leave it out while nothing comes: a batch must look.
                run.due_after = (*run.due_after, LOOK_SECONDS)
        except Retryable as error:
            # The batch counts as done, and the status shows what waits.
            run.held_back = str(error)
            self._news.tell(
                f"job alert: {error}; they stay in gold.alert and go out with the next batch"
            )
        else:
            if run.held_back:
                self._news.tell(f"job alert: {run.held_back}")
            else:
                self._news.over()


def note_refused(lake: Lake, requests: Iterable[str]) -> None:
    """Put requests that came to nothing into ops.audit, each once under its own id."""
    for payload in requests:
        action = decode_payload(payload, ALERT_ACTION.schema)
        put_row(
            lake.spool / "audit",
            f"refused-{action['action_id']}",
            {
                "at": action["at"].isoformat(),
                "who": action["who"],
                "act": f"alert.{action['action']}",
                "target": action["alert_id"],
                "detail": action["reason"],
                "outcome": "refused",
            },
        )


def alert_input(lake: Lake) -> DataFrame:
    """All that the alert state must see, as rows `(kind, targets, payload, attribution)`.

    What a batch costs is planning, by the number of expressions: so findings are read once, those
    that wait for nobody too, and what the join says of them is put together where it is read.
    """
    jobs, scopes = lake.settings.jobs, lake.settings.scopes
    # An import of old logs raises no live alerts.
    findings = lake.stream(FINDING, job="alert").where("mode <> 'import'")
    # Also where no class is chosen its heartbeats come: a checkpoint has the same sources either
    # way. A stream of nothing in their place makes Spark fail where the findings have a pause.
    events = joining_events(lake.stream(EVENT, job="alert"), jobs.attributed_classes)
    segments = lake.stream(DHCP_SEGMENT, job="alert")
    attributed = attribute(findings, segments, jobs, scopes, [events])
    where = lake.stream(ATTRIBUTION, job="alert").where("finding IS NOT NULL")
    actions = lake.stream(ALERT_ACTION, job="alert")
    return (
        to_state(attributed)
        .unionByName(_retold(where))
        .unionByName(
            actions.select(
                F.lit("action").alias("kind"),
                # A suppression concerns every rule that its pattern fits.
                F.when(~F.col("action").isin(SUPPRESS, UNSUPPRESS), F.array("rule_id")).alias(
                    "targets"
                ),
                to_payload("*").alias("payload"),
                F.lit(None).cast("string").alias("attribution"),
            )
        )
    )


def to_state(findings: DataFrame) -> DataFrame:
    """Attributed findings and events, as `attribute` gives them, for the state.

    A heartbeat of findings is a tick for every bucket. Attributed events go by the state as rows
    of gold.attributed_event, to no bucket.
    """
    beat, event = F.col("rule_id") == HEARTBEAT, is_event()
    kind = (
        F.when(beat, F.when(event, PASSING).otherwise("tick"))
        .when(event, ATTRIBUTED)
        .otherwise(JOINED)
    )
    return findings.select(
        kind.alias("kind"),
        F.when(~beat & ~event, _targets(F.col("rule_id") == INCIDENT)).alias("targets"),
        F.col("finding").alias("payload"),
        F.col("said").alias("attribution"),
    )


def _retold(attributions: DataFrame) -> DataFrame:
    """Findings that job `repair` attributed anew, for the state.

    Their text may have `alert`: the one that the finding counts on, where the state may have
    forgotten it.
    """
    # With today's schema: rows of an older release lack columns, which become null.
    rows = attributions.withColumn("_f", fields_of("finding", FINDING.schema, ROUTED))
    mac = F.when(F.col("holder.status") == "leased", F.col("holder.mac"))
    routed = [F.col(f"_f.{name}").alias(name) for name in ROUTED]
    # Which bucket has the risk of the former entity nobody knows here, so all of them are told.
    every = (F.col("rule_id") == INCIDENT) | F.col("via").isin(*SAID_ELSEWHERE)
    return rows.select("finding", "holder", "rev", "via", mac.alias("mac"), *routed).select(
        F.lit("finding").alias("kind"),
        _targets(every).alias("targets"),
        F.col("finding").alias("payload"),
        to_payload("holder", F.col("rev").alias("attr_rev"), "via").alias("attribution"),
    )


def _targets(every: Column) -> Column:
    """Whom a finding concerns: its rule, the correlations that count it, its entity's risk.

    `every`: whether each bucket is told besides, as of an incident, and of a correction: it may
    hold the risk of the entity that the finding counted for before.
    """
    own = F.array_distinct(
        F.array_compact(
            F.concat(F.array("rule_id"), F.coalesce("feeds", F.array()), F.array(risk_target()))
        )
    )
    nobody = F.array(F.lit(None).cast("string"))
    return F.when(every, F.concat(own, nobody)).otherwise(own)


def risk_target() -> Column:
    """The bucket target for the risk of a finding's entity, as `entity_of` names it.

    Null for an incident, and for what names no device, address, host or user. `mac`: of the
    device, where the address was leased.
    """
    # The same order as in `entity_of`: finding and risk must mean the same entity.
    key = (
        F.when(F.col("mac") != "", F.concat(F.lit("device|"), "mac"))
        .when(
            F.col("ip") != "",
            F.concat(F.lit("ip|"), F.coalesce("scope", F.lit("")), F.lit("|"), "ip"),
        )
        .when(F.col("host_name") != "", F.concat(F.lit("host|"), "host_name"))
        .when(F.col("user_name") != "", F.concat(F.lit("user|"), "user_name"))
    )
    return F.when(F.col("rule_id") != INCIDENT, F.concat(F.lit(f"{RISK}|"), key))
