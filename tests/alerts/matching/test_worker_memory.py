"""What a worker keeps of rules costs it no collections, and goes when its time is over."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from weakref import ref

import pyarrow as pa
from pyspark.sql import SparkSession

from alerts.matching.cost_metering import metered_matcher
from alerts.matching.event_rows import event_batch
from alerts.matching.few_rows import FEW
from alerts.matching.matcher import Matcher
from alerts.rulepack.predicate import All, Test, literals_of
from alerts.rulepack.rule_pack import PackStore, Rule, RulePack

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
NODE = All((Test("message", "contains", "evil"), Test("process.path", "endswith", ".exe")))
PACK = RulePack(
    rules=tuple(
        Rule(id=f"rule-{n}", title="x", predicate=NODE, literals=literals_of(NODE))
        for n in range(20)
    )
)


def batch(rows: int) -> pa.RecordBatch:
    return event_batch(
        [
            {
                "event_uid": f"e{n}",
                "time": NOON,
                "received_at": NOON,
                "class_uid": 1007,
                "source": "json",
                "mode": "live",
                "message": f"evil {n}",
                "process": {"path": "C:\\a.exe"},
            }
            for n in range(rows)
        ]
    )


def test_a_matcher_goes_without_the_collector() -> None:
    matcher = Matcher(PACK)
    assert matcher.match(batch(3)).num_rows == 60
    assert matcher.match(batch(FEW + 1)).num_rows == 20 * (FEW + 1)
    assert matcher.match(batch(3)).num_rows == 60
    parts = [value for value in vars(matcher).values() if type(value).__module__ != "builtins"]
    watched = [ref(part) for part in parts if hasattr(part, "__weakref__")]
    assert len(watched) > 5
    del parts
    gc.collect()
    gc.disable()
    try:
        del matcher
        assert [kept for kept in watched if kept() is not None] == []
    finally:
        gc.enable()


def test_a_workers_rules_are_kept_from_collections_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = PackStore(tmp_path)
    folder, pack = str(store.folder), store.put(PACK)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            counts = [gc.get_freeze_count()]
            for _ in range(2):
                metered_matcher(folder, pack, f"{folder}/spool")
                counts.append(gc.get_freeze_count())
            yield pa.RecordBatch.from_pydict({"id": pa.array(counts, pa.int64())})

    before, after, again = (
        row["id"] for row in spark.range(0, 1, 1, 1).mapInArrow(work, "id long").collect()
    )
    assert after > before
    assert again == after


def test_other_processes_keep_what_they_have_collected(tmp_path: Path) -> None:
    store = PackStore(tmp_path)
    before = gc.get_freeze_count()
    metered_matcher(str(store.folder), store.put(PACK), str(tmp_path / "spool"))
    assert gc.get_freeze_count() == before
