"""What rules cost: predicted on a sample, and as workers tell it."""

from __future__ import annotations

import argparse
import json
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from alerts.cli import __main__
from alerts.compiler.compiler import compile_rules
from alerts.coverage.rule_cost import ROUNDS, Sample, live_costs, predict, predicted, sample
from alerts.matching.cost_metering import EVERY, Meter
from alerts.matching.event_rows import event_batch
from alerts.matching.matcher import Cost, Matcher
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import Rule, RulePack
from alerts.tables import RULE_COST
from infra.config.settings import load
from infra.delta.duckdb_views import connect
from infra.errors import Usage
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.history import NOON, login, rules_in, with_rules
from tests.api.story import insert

CHEAP = Rule(id="cheap", title="Cheap", predicate=Test("message", "contains", "rare words"))
DEAR = Rule(id="dear", title="Dear", predicate=Test("message", "re", "."))
ELSEWHERE = Rule(id="no", title="", classes=(9999,), predicate=Test("message", "contains", "x"))


def taken(events: int = 1000) -> Sample:
    rows = [
        login(f"e{n}", n, message="rare words" if n % 100 == 0 else "none") for n in range(events)
    ]
    return Sample((event_batch(rows),), events, 10 * events, 100.0)


def test_candidates_and_hits_are_counted_per_million_events() -> None:
    cheap, dear, elsewhere = predict([CHEAP, DEAR, ELSEWHERE], taken())
    assert (cheap.events_per_million, cheap.hits_per_million) == (1_000_000, 10_000)
    assert cheap.candidates_per_million == 10_000
    assert dear.candidates_per_million == 1_000_000
    assert dear.verdict.startswith("loud")  # all its candidates match
    assert elsewhere.verdict == "no events of its log source"
    assert elsewhere.events_per_million == elsewhere.candidates_per_million == 0
    assert dear.hits_per_day == pytest.approx(100 * 86_400)


def test_time_is_the_least_of_the_rounds_less_what_the_matcher_costs_anyway() -> None:
    ticks = count(0.0, 0.5)  # each look at the clock is half a second later than the one before
    (told,) = predict([CHEAP], taken(), clock=lambda: next(ticks))
    assert told.micros_per_event == 0.0  # as long as the rule that looks at nothing
    assert next(ticks) == 2 * 2 * ROUNDS * 0.5


def test_a_prediction_is_plain_arithmetic() -> None:
    told = predicted(CHEAP, Cost(500, 20, 10, 0.0), 0.002, taken())
    assert told.micros_per_event == 2.0
    assert told.cpu_percent == 0.02  # 100 events a second, 2 microseconds each
    assert told.verdict == "cheap"
    verdicts = [
        predicted(CHEAP, cost, seconds, taken()).verdict.partition(":")[0]
        for cost, seconds in (
            (Cost(500, 61, 10, 0.0), 0.0),
            (Cost(500, 60, 10, 0.0), 0.0),
            (Cost(500, 1, 0, 0.0), 0.006),
            (Cost(500, 51, 51, 0.0), 0.0),
        )
    ]
    assert verdicts == ["dear", "cheap", "dear", "loud"]


def test_a_worker_tells_once_a_minute_what_was_spent_since(tmp_path: Path) -> None:
    now = [0.0]
    matcher = Matcher(RulePack(rules=(CHEAP, ELSEWHERE)))
    meter = Meter(matcher, tmp_path, lambda: now[0])
    batch = taken(200).batches[0]
    assert meter.match(batch).num_rows == 2
    assert not list(tmp_path.iterdir())
    for minute in (1, 2):
        now[0] = minute * EVERY
        meter.match(batch)
    rows = [json.loads(file.read_text("utf-8")) for file in sorted(tmp_path.glob("*.json"))]
    assert [row["events"] for row in rows] == [400, 200]
    spent = [row["rules"]["cheap"] for row in rows]
    assert [(one["events"], one["candidates"], one["hits"]) for one in spent] == [
        (400, 4, 4),
        (200, 2, 2),
    ]
    assert all(set(row["rules"]) == {"cheap"} for row in rows)


def test_a_spool_that_cannot_be_written_fails_no_batch(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    now = [0.0]
    meter = Meter(Matcher(RulePack(rules=(CHEAP,))), tmp_path / "file" / "x", lambda: now[0])
    now[0] = EVERY
    assert meter.match(taken(100).batches[0]).num_rows == 1


@pytest.mark.full
def test_a_sample_comes_from_all_over_the_span_and_both_costs_are_shown(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = with_rules(lake.settings)
    lake = Lake(lake.spark, settings)
    insert(lake, EVENT, [login(f"e{n}", n * 36, "root" if n % 4 else "ann") for n in range(100)])
    connection = connect(settings.lake_root)
    (rule,) = compile_rules([rules_in(settings.home / "rules")]).pack.rules
    found = sample(connection, [rule], NOON, NOON + timedelta(hours=1), 80)
    seconds = [at.timestamp() for batch in found.batches for at in batch.column("time").to_pylist()]
    assert (found.in_span, found.events) == (100, 80)
    assert max(seconds) - min(seconds) > 3500
    (told,) = predict([rule], found)
    assert told.hits_per_million > 500_000

    meter = Meter(
        Matcher(RulePack(rules=(rule,))), lake.spool / "rule_cost", count(0, EVERY).__next__
    )
    for batch in sample(connection, [rule], NOON, NOON + timedelta(hours=1), 1000).batches:
        meter.match(batch)
    assert flush_outbox(lake, RULE_COST, lake.spool / "rule_cost") > 0
    connection.close()
    connection = connect(settings.lake_root)
    rows, events, _ = live_costs(
        connection, NOON - timedelta(days=9999), NOON + timedelta(days=9999)
    )
    connection.close()
    assert [(row.rule_id, row.hits) for row in rows] == [(rule.id, 75)]
    assert events == 100
    assert run(settings, "--live", "--since", "1d", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["title"] == ""


def run(settings: Any, *words: str) -> int:
    parser = argparse.ArgumentParser()
    __main__.build(parser.add_subparsers())
    args = parser.parse_args(["rules", "cost", *words])
    code: int = args.run(args, settings)
    return code


def test_it_must_be_said_which_rules(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="--all or --live"):
        run(load(home=tmp_path))
    with pytest.raises(SystemExit) as refused:
        run(load(home=tmp_path), "--all", "--sample", "0")
    assert refused.value.code == 2
