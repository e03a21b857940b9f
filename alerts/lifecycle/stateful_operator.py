"""The alert state as Spark sees it: rows by bucket in, alerts and findings out.

Everything a rule or a correlation must remember lies in the bucket of its id,
so two stateful operators never have to follow each other in one query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from alerts.compiler.enrichment_predicates import Confirming, decided_index
from alerts.domain.finding import DISPROVED
from alerts.lifecycle.bucket_state import BucketState
from alerts.lifecycle.holder_confidence import decided_servers, decision, judge_holders
from alerts.lifecycle.payloads import ATTRIBUTED as EVENT
from alerts.lifecycle.payloads import decode_payload, pack_row
from alerts.lifecycle.republish_guard import REPUBLISH_DECISION, asked_of
from alerts.rulepack.rule_pack import PackStore
from alerts.tables import ALERT_ACTION, FINDING
from enrich.attribution.joined_row import LINE_END, attributed_event, attribution_of
from enrich.tables import HOLDER
from infra.config.settings import ScopeSettings, Settings
from infra.delta.schema import BYTES, L, S, struct
from infra.process.gc_pause import no_collection

# One operator has one schema, and four tables leave it (decision 0002).
OUTPUT = struct(out=S, payload=BYTES).spark
STATE = struct(blob=BYTES).spark
_FINDING = T.StructType([field for field in FINDING.schema if field.name != "holder"])
_HELD = struct(holder=HOLDER, attr_rev=L, via=S).spark
JOINED = "joined"
"""Kind of a finding that comes from the join, whose word on it is yet to be read."""
_SCHEMAS = {
    "finding": _FINDING,
    JOINED: FINDING.schema,
    "tick": FINDING.schema,
    "action": ALERT_ACTION.schema,
}
PASSING = "passing"
"""Kind of a row that has done its work before the state, such as a heartbeat of the events."""

NO_BUCKET = -1
SAID_ELSEWHERE = ("correction", "late", "repair", DISPROVED)
"""Attributions that reach the state from gold.attribution and must not be written there again."""


def fold_alerts(rows: DataFrame, settings: Settings, store: str) -> DataFrame:
    """Rows `(kind, targets, payload, attribution)` -> rows `(out, payload)`, out one of those of
    `BucketState`, payload packed (`alerts.lifecycle.payloads`).

    `attribution`: whose address it was, beside a finding's own text: as JSON, or in the join's own
    words (`enrich.attribution.joined_row`).
    `targets`: the rule and the correlations a row concerns; null: every bucket (a tick).
    Rows of kind `attributed_event` or `passing` concern none: they leave as they came, or not
    at all. They only come this way because a query has one output, and a branch beside this one
    would run the join a second time, with a state of its own.
    """
    buckets = settings.jobs.alert_buckets
    # A heartbeat must reach buckets without findings too, or their windows would never close.
    every = F.sequence(F.lit(0), F.lit(buckets - 1))
    # Such rows go to a group of their own, so they never cause a bucket to be decoded.
    passes = F.col("kind").isin(EVENT, PASSING)
    to_some = F.when(F.col("target").isNull(), every).otherwise(
        F.array(to_bucket("target", buckets))
    )
    spread = rows.select(
        "kind",
        "payload",
        "attribution",
        F.current_timestamp().alias("now"),
        F.explode(F.coalesce("targets", F.array(F.lit(None).cast("string")))).alias("target"),
    ).select(
        "kind",
        "payload",
        "attribution",
        "now",
        "target",
        F.explode(F.when(passes, F.array(F.lit(NO_BUCKET))).otherwise(to_some)).alias("bucket"),
    )
    # By bucket, not by rule: a call into Python costs about 2 ms whatever it does (decision 0002).
    return spread.groupBy("bucket").applyInPandasWithState(
        stepper(settings, store),
        OUTPUT,
        STATE,
        "append",
        # Ticks in the rows move time on: a timeout of Spark's would depend on the wall clock.
        GroupStateTimeout.NoTimeout,
    )


def to_bucket(target: str, buckets: int) -> Any:
    """Bucket of a rule or correlation id, as a column."""
    return F.expr(f"CAST(pmod(xxhash64({target}), {buckets}) AS INT)")


def stepper(
    settings: Settings, store: str
) -> Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """The function each bucket runs on its rows of a micro-batch."""
    alerts, packs = settings.alerts, PackStore(Path(store))
    confirming = Confirming(packs.get)
    wait = timedelta(seconds=settings.jobs.wait_seconds)
    wait_us = settings.jobs.wait_seconds * 1_000_000

    def advanced(
        frames: Iterator[pd.DataFrame], state: GroupState
    ) -> tuple[BucketState, list[dict[str, Any]]]:
        rows, detected = _arrived(frames, wait)
        bucket = BucketState.decode(state.get[0]) if state.exists else BucketState()
        known = bucket.dhcp_known(rows, wait_us)
        judge_holders(rows, known, decided_servers(settings.checkpoint_root), settings.scopes)
        # The driver wrote down which index the batch uses, so that a retry asks the same one.
        rows = confirming.counting(rows, partial(decided_index, settings))
        published = asked_of(settings, decision(settings.checkpoint_root, REPUBLISH_DECISION))
        now = round(detected.timestamp() * 1_000_000)
        outputs = [
            *bucket.step(rows, packs.get, alerts, now, published=published),
            *attributions(rows, detected),
        ]
        return bucket, outputs

    def step(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        if key[0] == NO_BUCKET:
            yield from passed(frames, wait, settings.scopes)
            return
        # The collector would walk over every object of the state again while it is decoded.
        with no_collection():
            bucket, outputs = advanced(frames, state)
            # One blob, not columns: Spark's state schema then never changes when the contents do.
            state.update((bucket.encode(),))
        # An empty frame would still be sent through Arrow for each bucket and batch.
        if outputs:
            yield pd.DataFrame(
                {
                    "out": [output["out"] for output in outputs],
                    "payload": [_packed(output) for output in outputs],
                },
                dtype=object,
            )

    return step


def _arrived(
    frames: Iterator[pd.DataFrame], wait: timedelta
) -> tuple[list[dict[str, Any]], datetime]:
    """A bucket's rows of a batch as plain rows, and the batch's own time.

    Spark keeps that time in the checkpoint: a retry decides the same.
    """
    arrived: list[tuple[str, str, str, str]] = []
    stamps: list[pd.Timestamp] = []
    for frame in frames:
        targets, held = frame["target"].fillna(""), frame["attribution"].fillna("")
        arrived += zip(frame["kind"], targets, frame["payload"], held, strict=True)
        stamps.append(frame["now"].max())
    # A shuffle delivers in any order; the same rows must give the same alerts on a retry.
    arrived.sort()
    rows = [
        _row(kind, payload, held, wait) | {"target": target or None}
        for kind, target, payload, held in arrived
    ]
    detected: datetime = max(stamps).tz_localize(UTC).to_pydatetime()
    return rows, detected


def _row(kind: str, payload: str, held: str, wait: timedelta) -> dict[str, Any]:
    """A row as the bucket takes it; of a finding with whose address it was."""
    text, _, routing = payload.partition(LINE_END)
    row = decode_payload(text, _SCHEMAS[kind])
    if kind == JOINED:
        return row | attribution_of(row, routing, held, wait) | {"row_kind": "finding"}
    known = decode_payload(held, _HELD) if held and kind == "finding" else {}
    return row | known | {"row_kind": kind}


def _packed(output: dict[str, Any]) -> bytes:
    """A row that leaves the state; a refused request as JSON, since it goes on as text."""
    row = output["row"]
    return msgspec.json.encode(row) if output["out"] == "refused" else pack_row(row)


def passed(
    frames: Iterator[pd.DataFrame], wait: timedelta, scopes: Sequence[ScopeSettings]
) -> Iterator[pd.DataFrame]:
    """Rows that need no state and make none."""
    for frame in frames:
        events = frame[frame["kind"] == EVENT]
        if len(events):
            payloads = [
                _event(payload, held, wait, scopes)
                for payload, held in zip(events["payload"], events["attribution"], strict=True)
            ]
            yield pd.DataFrame({"out": list(events["kind"]), "payload": payloads}, dtype=object)


def _event(payload: str, held: str, wait: timedelta, scopes: Sequence[ScopeSettings]) -> bytes:
    text, _, _ = payload.partition(LINE_END)
    event = decode_payload(text, FINDING.schema)
    return pack_row(attributed_event(event, attribution_of(event, "", held, wait), scopes))


def attributions(rows: list[dict[str, Any]], said_at: Any) -> Iterator[dict[str, Any]]:
    """What this job itself found out about whose address it was, for gold.attribution."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        # The same finding also comes to correlations and to the risk: one row of it is written.
        own = row["row_kind"] == "finding" and row["target"] == row["rule_id"]
        if not own or row["kind"] != "event" or row["via"] in SAID_ELSEWHERE:
            continue
        key = (row["finding_id"], row["role"])
        # A batch may hold a finding once for each lease; only the newest word is written.
        if key not in best or row["attr_rev"] > best[key]["attr_rev"]:
            best[key] = row
    for row in best.values():
        yield {
            "out": "attribution",
            "row": {
                "finding_id": row["finding_id"],
                "role": row["role"],
                "rev": row["attr_rev"],
                "event_time": row["event_time"],
                "holder": row["holder"],
                "via": row["via"],
                "attributed_at": said_at,
            },
        }
