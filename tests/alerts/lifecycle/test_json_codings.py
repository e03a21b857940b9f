"""How often a finding is coded to JSON or read from it between the match and the topic.

match ─► gold.finding ─► join ─► fold ─► gold.alert ─► topic
                         1: to_json      3: encode
                                 2: decode
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from alerts.delivery.alert_message import published_body, published_state
from alerts.lifecycle.alert_job import Outputs, to_state
from alerts.lifecycle.stateful_operator import stepper
from alerts.rulepack.locations import store_folder
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import PackStore, Rule, RulePack
from alerts.tables import ALERT, FINDING
from enrich.attribution.stream_join import attribute
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT
from infra.config.settings import load
from infra.delta.parquet_writer import Target
from tests.alerts.lifecycle.test_alert_fold import finding, leased
from tests.enrich.rows import A, rows, segment
from tests.enrich.rows import finding as matched

CODERS = {msgspec.json.encode: "encode", msgspec.json.decode: "decode"}
RULE = Rule(
    id="r",
    title="Guessing",
    level="high",
    predicate=Test("message", "eq", "x"),
    alerting=True,
)


class Fresh:
    """The state of a bucket that had none."""

    exists = False
    blob: bytes

    def update(self, value: tuple[bytes]) -> None:
        (self.blob,) = value


@contextmanager
def counted() -> Iterator[Counter[tuple[str, str]]]:
    """Calls of msgspec's JSON while inside: (calling function, encode or decode)."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, called: Any) -> None:
        for coder, name in CODERS.items() if event == "c_call" else ():
            if called is coder:
                calls[frame.f_code.co_name, name] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_the_join_codes_a_finding_once_and_hands_on_its_text(spark: SparkSession) -> None:
    findings = rows(spark, FINDING, [matched(5)])
    leases = rows(spark, DHCP_SEGMENT, [segment(0, 10, A, 0, 1)])
    plan = to_state(attribute(findings, leases, load().jobs, load().scopes))
    text = plan._jdf.queryExecution().optimizedPlan().toString()
    # What codes a whole finding names each of its fields; its routing has few, and nobody else
    # reads or writes JSON: planning that is what a batch would wait for.
    assert text.count("StructField(rule_title,") == 1
    assert text.count("from_json(") == 1
    assert text.count("StructsToJsonEvaluator(") == 3, "the finding, its routing, the segment"


def test_a_release_that_knows_no_routing_reads_the_finding_before_it(spark: SparkSession) -> None:
    # Such a text waits in the join's state when somebody goes back to the release before.
    text = F.lit('{"rule_id": "r", "ip": "10.0.0.1"}\n{"rule_id": "other"}')
    read = F.from_json(text, "rule_id string, ip string")
    (row,) = spark.range(1).select(read.alias("f")).select("f.*").collect()
    assert row.asDict() == {"rule_id": "r", "ip": "10.0.0.1"}


def test_from_the_join_to_the_topic_a_finding_is_read_once_and_its_alert_coded_once(
    tmp_path: Path,
) -> None:
    settings = load(home=tmp_path)
    pack = PackStore(store_folder(settings)).put(RulePack(rules=(RULE,)))
    row = finding(0, leased("aa"), pack=pack)
    held = ("holder", "attr_rev", "via", "row_kind", "target")
    frame = pd.DataFrame(
        {
            "kind": "finding",
            "target": "r",
            "payload": [as_json({name: row[name] for name in row if name not in held})],
            "attribution": [as_json({name: row[name] for name in held[:3]})],
            "now": pd.Timestamp("2025-03-01T12:00:05"),
        }
    )
    step: Callable[..., Iterator[pd.DataFrame]] = stepper(settings, str(store_folder(settings)))
    targets = {t.name: Target.of(t, tmp_path, f"{t.name}-") for t in (ALERT, ATTRIBUTION)}
    with counted() as calls:
        (frame,) = step((1,), iter([frame]), Fresh())
        batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
        written = pa.Table.from_batches(Outputs(targets, 0, 1)(iter([batch]))).to_pylist()
    (name,) = (file["name"] for file in written if file["table"] == ALERT.name)
    (body,) = pq.read_table(tmp_path / name).column("body").to_pylist()
    with counted() as going_out:
        message = published_body(body.encode(), "2026-11-21T12:00:00.000Z")
    assert calls.pop(("from_json", "decode")) == 1, "the rule pack"
    # The second text is short: whose address it was.
    assert calls == {("decode_payload", "decode"): 2, ("bounded", "encode"): 1}
    assert going_out == {}
    alert = msgspec.json.decode(message)
    assert (alert["entity"]["value"], alert["fields"]) == ("aa", {"user.name": "root"})
    assert msgspec.json.decode(published_state(message))["alert_id"] == alert["alert_id"]


def as_json(row: dict[str, Any]) -> str:
    return msgspec.json.encode(row).decode()
