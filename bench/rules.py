"""Matching rules: the engine alone, on recorded events and on made-up ones, the whole Spark job
against one expression a rule, and job `ingest` against parsing and matching alone.

The job reads the table silver.event and writes findings, once as backtests and `verify`
do and once as stock Spark would: text lowered once, one SQL condition a rule, all of
them in one pass. Both must find the same.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from alerts.backtest.history_match import EventHistory
from alerts.compiler.compiler import compile_rules
from alerts.matching.column_access import column
from alerts.matching.matcher import Matcher
from alerts.rulepack.predicate import All, Either, Node, Not, Test, paths_of
from alerts.rulepack.rule_pack import PackStore, Rule, RulePack
from bench.beside_rsigma import VERSION, beside, build, sayable
from bench.measure import Measure, Report, cpu_seconds
from bench.recorded_job import whole_job
from bench.recorded_mix import SEED, SOURCE, recorded_batches, recorded_pack
from bench.rule_mix import CHANNELS, PROCESS, Channel, event_batches, rule_pack
from infra.config.settings import load
from infra.delta.parquet_writer import FileWriter, Target
from infra.delta.transaction import commit_files
from infra.spark.session import session
from infra.streaming.lake import Lake
from ingest.tables import EVENT

COUNTS = (10, 100, 1000, 3000)
ONE_LOGSOURCE = 1400
RECORDED = 1413
COMPARED = 1000
ENGINE_BAR, SMALL_BATCH_BAR, STOCK_BAR, SCALE_BAR = 30_000, 21_000, 20, 0.6
RSIGMA_BAR = 1.0
SMALL_TO_LARGE_BAR = 0.7
SPAN = (datetime(1970, 1, 2, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))
GATED = ("process.cmd_line", "process.path", "process.parent.path", "process.internal_name")
LISTS = ("answers.rdata",)
"""Paths through a list; the events here have one element each."""


class Size(NamedTuple):
    """How much is measured: events made, times they are repeated for the job, and repetitions."""

    events: int
    copies: int
    repeat: int


def run(quick: bool = False, rules: Path | None = None) -> Report:
    """Engine alone over four pack sizes, then the whole job over the same.

    `rules`: a folder of Sigma rules whose process creations are run on the recorded events, in
    place of those made in their manner.
    """
    report = Report("rules", "make bench ONLY=rules" + (f" RULES={rules.name}" if rules else ""))
    size = Size(10_000, 5, 1) if quick else Size(40_000, 5, 3)
    pack = _pack(rules)
    _recorded(report, size, pack)
    _beside_rsigma(report, size, pack)
    _engine(report, size)
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    spark = session(load(home=home, spark={"small": False}), "rules")
    try:
        _jobs(report, spark, home, size, quick)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    # A process of its own: how a JVM compiles is settled when it begins.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        measures, notes = other.submit(_whole_job, size, rules).result()
    report.measures.extend(measures)
    report.notes.extend(notes)
    return report


def _pack(rules: Path | None) -> RulePack:
    return recorded_pack(RECORDED) if rules is None else _process_rules(rules)


def _whole_job(size: Size, rules: Path | None) -> tuple[list[Measure], list[str]]:
    """Job `ingest` in a session as the driver of `headgate up` has it."""
    report = Report("rules", "")
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    spark = session(load(home=home), "rules", small_batches=True)
    try:
        # More rounds than of others: each takes a minute, in which a machine changes its pace.
        rounds = size.repeat * 2 + 1
        whole_job(report, spark, home, _pack(rules), size.events * 2, rounds)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    return report.measures, report.notes


def _engine(report: Report, size: Size) -> None:
    """Events a CPU second of `Matcher` over batches in memory, planning of the first left out."""
    for label, channels, count in _packs():
        pack = rule_pack(count, channels)
        batches = event_batches(pack, size.events, channels)
        matcher = Matcher(pack)
        hits = sum(matcher.match(batch).num_rows for batch in batches)
        rates = [_rate(matcher, batches, size.events) for _ in range(size.repeat + 1)]
        bar = {}
        if count == ONE_LOGSOURCE:
            bar = {"bar": f">= {ENGINE_BAR:,}", "met": sorted(rates)[len(rates) // 2] >= ENGINE_BAR}
        report.add(f"engine, {label}, {count} rules", rates, "events/CPU-s", **bar)
        tried = sum(cost.candidates for cost in matcher.costs().values())
        report.notes.append(
            f"engine, {label}, {count} rules: {hits / size.events:.2%} of events hit; "
            f"{tried / size.events / (size.repeat + 2):.4f} candidates an event"
        )


def _process_rules(folder: Path) -> RulePack:
    """The rules of a folder that look at the starts of processes in the recorded events' source."""
    every = compile_rules([folder]).pack.rules
    return RulePack(
        rules=tuple(
            rule for rule in every
            if 1007 in rule.classes and (not rule.sources or SOURCE in rule.sources)
        )
    )  # fmt: skip


def _recorded(report: Report, size: Size, pack: RulePack) -> None:
    """Recorded events and their variations, in batches as backtests and as live jobs have them."""
    medians = []
    for rows, bar in ((10_000, ENGINE_BAR), (500, SMALL_BATCH_BAR)):
        # Each repetition has events of its own: what was remembered of the same ones would flatter.
        batches = recorded_batches(size.events * (size.repeat + 2), rows)
        part = len(batches) // (size.repeat + 2)
        matcher = Matcher(pack)
        hits = sum(matcher.match(batch).num_rows for batch in batches[:part])
        tried = sum(cost.candidates for cost in matcher.costs().values())
        rates = [
            _rate(matcher, batches[start : start + part], size.events)
            for start in range(part, len(batches), part)
        ]
        report.add(
            f"engine, recorded process starts, {len(pack.rules)} rules, {rows} rows a batch", rates,
            "events/CPU-s", bar=f">= {bar:,}", met=sorted(rates)[len(rates) // 2] >= bar,
        )  # fmt: skip
        report.notes.append(
            f"recorded, {rows} rows a batch, seed {SEED}: {hits / size.events:.2f} findings and "
            f"{tried / size.events:.2f} candidates an event"
        )
        confirmed, known = matcher.remembered()
        texts = [texts for batch in batches for texts in _asked(batch)]
        lines = {line for line, *_ in texts}
        report.notes.append(
            f"recorded, {rows} rows a batch: {len(lines) / len(texts):.0%} of the command lines "
            f"differ, {len(set(texts)) / len(texts):.0%} of the events in what gates ask; of the "
            f"events confirmed {known / max(confirmed, 1):.0%} were known"
        )
        medians.append(median(rates))
    ratio = medians[1] / medians[0]
    report.add(
        "engine, recorded process starts, 500 / 10000 rows a batch", [ratio], "ratio",
        bar=f">= {SMALL_TO_LARGE_BAR}", met=ratio >= SMALL_TO_LARGE_BAR,
    )  # fmt: skip


def _asked(batch: pa.RecordBatch) -> Iterator[tuple[str | None, ...]]:
    """Of each event the texts that gates are asked of: what is remembered is found by these."""
    return zip(*(column(batch, path) for path in GATED), strict=True)


def _beside_rsigma(report: Report, size: Size, pack: RulePack) -> None:
    """The same rules on the same events, evaluated by rsigma, where it can be built."""
    if why := build():
        report.notes.append(f"rsigma is not measured: {why}")
        return
    same = sayable(pack)
    batches = recorded_batches(size.events, 10_000)
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    try:
        theirs = beside(same, batches, folder, size.repeat)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    what = f"recorded process starts, {len(same.rules)} rules"
    report.add(f"rsigma {VERSION}, {what}", theirs.rates, "events/CPU-s")
    ratio = median(theirs.ours) / median(theirs.rates)
    report.add(
        f"engine / rsigma, {what}", [ratio], "ratio",
        bar=f">= {RSIGMA_BAR}", met=ratio >= RSIGMA_BAR,
    )  # fmt: skip
    report.notes.append(
        f"rsigma: evaluation alone, in its way '{theirs.way}'; {theirs.pairs} pairs, the same as "
        f"ours; {len(pack.rules) - len(same.rules)} rules cannot be written for it"
    )


def _packs() -> Iterator[tuple[str, Sequence[Channel], int]]:
    for count in COUNTS:
        yield "mix", CHANNELS, count
    yield "process creation", PROCESS, ONE_LOGSOURCE


def _rate(matcher: Matcher, batches: Sequence[pa.RecordBatch], events: int) -> float:
    began = time.process_time()
    for batch in batches:
        matcher.match(batch)
    return events / (time.process_time() - began)


def _jobs(report: Report, spark: SparkSession, home: Path, size: Size, quick: bool) -> None:
    """The whole job for each pack size; stock Spark where the bar compares, and below."""
    rates = {}
    for count in COUNTS:
        pack = rule_pack(count)
        lake = _silver(spark, home, pack, size)
        store = PackStore(home / f"rules-{count}")
        store.put(pack)
        found_in = EventHistory(lake).findings(*SPAN, str(store.folder), [pack])
        job = found_in.select("rule_id", "event_uid")
        ours, found = _measured(job, home / "ours", size.events * size.copies, size.repeat)
        more = {}
        if count <= COMPARED and not (quick and count < COMPARED):
            stock = _stock(lake.read(EVENT), pack)
            theirs, same = _measured(stock, home / "stock", size.events * size.copies, 1)
            report.add(f"job, stock Spark, {count} rules", theirs, "events/CPU-s")
            ratio = sorted(ours)[len(ours) // 2] / theirs[0]
            more = {"compared_with": "one expression a rule", "ratio": ratio}
            if count == COMPARED:
                more |= {"bar": f">= {STOCK_BAR}x", "met": ratio >= STOCK_BAR}
            if found != same:
                raise ValueError(f"{count} rules: ours and Spark's findings differ: {found ^ same}")
        rates[count] = report.add(f"job, {count} rules", ours, "events/CPU-s", **more).value or 0.0
    scale = rates[COUNTS[-1]] / rates[COUNTS[0]]
    report.add(
        f"job, rate({COUNTS[-1]}) / rate({COUNTS[0]})", [scale], "ratio",
        bar=f">= {SCALE_BAR}", met=scale >= SCALE_BAR,
    )  # fmt: skip


def _silver(spark: SparkSession, home: Path, pack: RulePack, size: Size) -> Lake:
    """A lake with events for a pack in silver.event, in as many files as copies."""
    lake = Lake(spark, load(home=home / f"{len(pack.rules)}")).ensure(EVENT)
    target = Target.of(EVENT, lake.folder(EVENT), "bench-")
    batches = event_batches(pack, size.events)
    for copy in range(size.copies):
        writer = FileWriter(target)
        for batch in batches:
            writer.write(batch)
        file = writer.close()
        commit_files(spark, lake.path(EVENT), [file] if file else [], f"copy {copy}")
    return lake


def _measured(
    job: DataFrame, target: Path, events: int, repeat: int
) -> tuple[list[float], set[tuple[str, str]]]:
    """Events a CPU second of all processes, the first run left out, and what was found."""
    write = partial(job.write.mode("overwrite").parquet, str(target))
    write()
    rates = []
    for _ in range(repeat):
        before = cpu_seconds()
        write()
        rates.append(events / (cpu_seconds() - before))
    rows = job.sparkSession.read.parquet(str(target)).collect()
    return rates, {(row["rule_id"], row["event_uid"]) for row in rows}


def _stock(events: DataFrame, pack: RulePack) -> DataFrame:
    """One SQL condition a rule, over text that was lowered once."""
    paths = sorted({path for rule in pack.rules for path in paths_of(rule.predicate)})
    names = {path: f"t{number}" for number, path in enumerate(paths)}
    lowered = events.where(
        "dead_letter_reason IS NULL AND duplicate_of IS NULL AND mode IN ('live', 'replay')"
    ).selectExpr(
        "event_uid", "class_uid", "source", *(f"{_lower(p)} AS {name}" for p, name in names.items())
    )
    hits = [
        F.expr(f"CASE WHEN {_rule(rule, names)} THEN {_text(rule.id)} END") for rule in pack.rules
    ]
    every = lowered.select("event_uid", F.array_compact(F.array(*hits)).alias("rules"))
    return every.select(F.explode("rules").alias("rule_id"), "event_uid")


def _lower(path: str) -> str:
    return f"lower(array_join({path}, ''))" if path in LISTS else f"lower({path})"


def _rule(rule: Rule, names: dict[str, str]) -> str:
    where = f"class_uid = {rule.classes[0]} AND source = {_text(rule.sources[0])}"
    return f"{where} AND {_condition(rule.predicate, names)}"


def _condition(node: Node, names: dict[str, str]) -> str:
    """The tree in Spark SQL, two-valued."""
    if isinstance(node, Not):
        return f"NOT coalesce({_condition(node.of, names)}, false)"
    if isinstance(node, All | Either):
        joined = " AND " if isinstance(node, All) else " OR "
        return f"({joined.join(_condition(part, names) for part in node.of)})"
    return _test(node, names[node.field])


def _test(test: Test, name: str) -> str:
    """Networks here are whole octets, so a prefix of the text says the same."""
    value = str(test.value)
    if test.op == "re":
        return f"{name} RLIKE {_text(value)}"
    if test.op == "cidr":
        return f"startswith({name}, {_text(value.removesuffix('0.0/16'))})"
    if test.op == "eq":
        return f"{name} = {_text(value.lower())}"
    return f"{test.op}({name}, {_text(value.lower())})"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
