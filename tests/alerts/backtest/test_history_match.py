"""Backtests: the live engine over history, without hindsight, kept, resumed and compared."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.backtest import run as backtest_run
from alerts.backtest.compare import compare_alerts
from alerts.backtest.fold import Brief, Refold
from alerts.backtest.result import kept_alerts, summarise
from alerts.backtest.rule_selection import choose_against, select_rules, warm_up_seconds
from alerts.backtest.run import (
    Backtest,
    BacktestRequest,
    Run,
    backtest_folder,
    begin_backtest,
    forget_backtest,
    stored_backtests,
)
from alerts.cli import __main__
from alerts.domain.entity import micros
from alerts.lifecycle.bucket_state import BucketState
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Correlation, PackStore, RulePack
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings, load
from infra.delta.transaction import active_files
from infra.errors import Usage
from infra.maintenance import maintenance
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.history import IP, LOGIN, MANY, NOON, A, B, at, leased, login, with_rules
from tests.alerts.lifecycle.test_alert_fold import COUNT, PACK, finding
from tests.alerts.lifecycle.test_alert_fold import load as load_pack
from tests.api.story import insert
from tests.examples import examples

DRAFT = f"""
title: Login failed, stricter
id: {LOGIN}
logsource: {{product: linux, service: sshd}}
detection:
  refused:
    status_id: 2
    user.name: [root, admin]
  condition: refused
level: high
"""


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return with_rules(load(home=tmp_path))


# -- which rules -------------------------------------------------------------------------------


def test_a_correlation_brings_what_it_counts_which_does_not_alert(home: Settings) -> None:
    chosen = select_rules(home, ["guessing"])
    assert chosen.ids == (MANY,)
    (rule,) = chosen.pack.rules
    assert (rule.id, rule.alerting, rule.feeds) == (LOGIN, False, (MANY,))
    assert [c.alerting for c in chosen.pack.correlations] == [True]


def test_a_rule_alone_feeds_nobody_and_alerts(home: Settings) -> None:
    (rule,) = select_rules(home, [LOGIN]).pack.rules
    assert (rule.alerting, rule.feeds) == (True, ())
    assert not select_rules(home, [LOGIN]).pack.correlations


def test_a_draft_takes_the_place_of_the_rule_with_its_id(home: Settings, tmp_path: Path) -> None:
    draft = tmp_path / "draft.yml"
    draft.write_text(DRAFT, "utf-8")
    (drafted,) = select_rules(home, [str(draft)]).pack.rules
    assert (drafted.id, drafted.title) == (LOGIN, "Login failed, stricter")
    (live,) = choose_against(home, LOGIN, (LOGIN,)).pack.rules
    assert live.title == "Login failed"


def test_rules_that_are_off_run_and_still_carry_for_each_other(home: Settings) -> None:
    whole = select_rules(home, ["guessing"]).pack
    PackStore(store_folder(home)).disable(MANY, "ann", "noisy")
    assert select_rules(home, ["guessing"]).pack == whole


def test_what_is_no_rule_is_refused_by_name(home: Settings, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text("title: Broken\nlogsource: {product: linux}\n", "utf-8")
    with pytest.raises(Usage, match=r"broken\.yml is refused"):
        select_rules(home, [str(broken)])
    with pytest.raises(Usage, match="no rule 'nobody'"):
        select_rules(home, ["nobody"])
    store = PackStore(store_folder(home))
    other = store.put(RulePack())
    with pytest.raises(Usage, match="has none of the rules"):
        choose_against(home, other, (LOGIN,))


def test_the_time_before_a_span_covers_chains_of_correlations() -> None:
    below = Correlation(
        id="b", title="", type="event_count", rules=("r",), group_by=(), timespan_seconds=60
    )
    above = Correlation(
        id="a", title="", type="event_count", rules=("b",), group_by=(), timespan_seconds=600
    )
    assert warm_up_seconds(RulePack(), 3600) == 3600
    assert warm_up_seconds(RulePack(correlations=(below, above)), 3600) == 3600 + 660


# -- the state machine over history ------------------------------------------------------------


def available(row: dict[str, Any], delay: float = 0) -> dict[str, Any]:
    return row | {"available_at": row["received_at"] + timedelta(seconds=delay)}


def test_history_gives_the_alerts_that_the_stream_gave() -> None:
    rows = [available(finding(n * 30)) for n in range(6)]
    rows += [available(finding(4000 + n)) for n in range(3)]
    refold = Refold(load_pack, load(alerts={"tenant": "default"}), ["r", "c"])
    refold.run(rows)

    state, told = BucketState(), []
    for row in rows:
        clock = micros(row["available_at"])
        both = [row, row | {"target": "c"}]
        outputs = state.step(both, load_pack, load().alerts, clock)
        told += [out["row"] for out in outputs if out["out"] == "finding"]
        ids = [out["row"]["alert_id"] for out in outputs if out["out"] == "alert"]
        assert set(ids) <= set(refold.alerts)
    assert [f["finding_id"] for f in refold.findings] == [f["finding_id"] for f in told]
    assert {a.rule_id for a in refold.alerts.values()} == {"r", "c"}
    counts = sorted(a.count for a in refold.alerts.values() if a.rule_id == "r")
    assert counts == [3, 6]


def test_a_chain_of_correlations_comes_back_and_is_counted() -> None:
    above = Correlation(
        id="d", title="Again", type="event_count", rules=("c",), group_by=("device",),
        timespan_seconds=3600, count=2, level="critical", alerting=True,
    )  # fmt: skip
    pack = RulePack(
        rules=PACK.rules, correlations=(COUNT.__class__(**_with(COUNT, feeds=("d",))), above)
    )
    rows = [available(finding(s, pack=pack.hash)) for s in (0, 1, 2, 600, 601, 602)]
    refold = Refold(lambda _: pack, load(), ["r", "c", "d"])
    refold.run(rows)
    assert [f["rule_id"] for f in refold.findings] == ["c", "c", "d"]
    assert [a.count for a in refold.alerts.values() if a.rule_id == "d"] == [1]


def _with(correlation: Correlation, **more: Any) -> dict[str, Any]:
    return {name: getattr(correlation, name) for name in correlation.__struct_fields__} | more


@examples(30)
@given(st.lists(st.integers(0, 4000), min_size=1, max_size=40, unique=True))
def test_each_finding_counts_on_one_alert(seconds: list[int]) -> None:
    rows = [available(finding(second)) for second in sorted(seconds)]
    refold = Refold(load_pack, load(), ["r"])
    refold.run(rows)
    assert sum(one.count for one in refold.alerts.values()) == len(seconds)


# -- two versions ------------------------------------------------------------------------------


def brief(key: str, first: int, last: int, rule: str = "r") -> Brief:
    return Brief(
        alert_id=f"{rule}-{key}-{first}", rule_id=rule, level="high", entity_type="ip",
        entity_value=key, key=key, first=first, last=last, received=last, count=1,
        status="none", title="",
    )  # fmt: skip


BRIEFS = st.lists(
    st.builds(
        lambda key, first, span: brief(key, first, first + span),
        st.sampled_from("ab"),
        st.integers(0, 30),
        st.integers(0, 5),
    ),
    max_size=8,
)


@given(BRIEFS, BRIEFS)
def test_gained_and_lost_are_what_meets_nothing_on_the_other_side(
    new: list[Brief], old: list[Brief]
) -> None:
    def meets(one: Brief, others: Sequence[Brief]) -> bool:
        return any(o.key == one.key and o.first <= one.last and one.first <= o.last for o in others)

    found = compare_alerts(new, old, by_rule=True)
    assert list(found.gained) == [one for one in new if not meets(one, old)]
    assert list(found.lost) == [one for one in old if not meets(one, new)]
    assert list(found.same) == [one for one in new if meets(one, old)]


def test_a_draft_under_another_id_is_compared_by_entity_alone() -> None:
    new, old = [brief("a", 0, 5, "draft")], [brief("a", 5, 9, "live")]
    assert len(compare_alerts(new, old, by_rule=False).same) == 1
    assert len(compare_alerts(new, old, by_rule=True).gained) == 1


# -- on Spark ----------------------------------------------------------------------------------


class Cut(Exception):
    """Somebody pressed Ctrl-C."""


def wish(settings: Settings, names: Sequence[str], against: str | None = None) -> BacktestRequest:
    rules = select_rules(settings, names)
    other = choose_against(settings, against, rules.ids) if against else None
    return BacktestRequest(tuple(names), rules, NOON, NOON + timedelta(hours=3), other, against)


def result_of(settings: Settings, lake: Lake, asked: BacktestRequest) -> tuple[dict[str, Any], Run]:
    run = begin_backtest(settings, asked)
    work = Backtest(settings, lambda: lake, run)
    told = work.through(lambda _: None)
    result = summarise(work, told, PackStore(store_folder(settings)))
    work.finish()
    return result, run


HISTORY = [
    *(login(f"a{n}", n * 10) for n in range(4)),  # A's, as was known at once
    *(login(f"b{n}", 3600 + n * 10) for n in range(3)),  # B's, as was known only an hour later
    *(login(f"c{n}", 7200 + n * 10) for n in range(3)),  # B's, known within the wait
    login("admin", 50, "admin"),
    login("twice", 60, duplicate_of="a0"),
    login("dead", 70, dead_letter_reason="not text"),
    login("before", -30),
    login("free", 9500),
    login("after", 3 * 3600),
    login("outside", 100, ip="192.0.2.9"),
    login("old", 200, mode="import", received_at=at(86_400)),
]
SEGMENTS = [
    leased(1, -600, 3500, A),
    leased(2, 3500, 7000, A),
    leased(3, 3500, 7000, B, known_at=at(7300), learned_at=at(7300)),
    leased(4, 7100, 9000, B, known_at=at(7215), learned_at=at(7215)),
]


@pytest.mark.full
def test_a_backtest_knows_what_was_known_then_and_nothing_else(lake: Lake) -> None:
    settings = with_rules(lake.settings)
    insert(lake, EVENT, HISTORY)
    insert(lake, DHCP_SEGMENT, SEGMENTS)
    lake = Lake(lake.spark, settings)

    result, run = result_of(settings, lake, wish(settings, ["login_failed", "guessing"]))

    told = {
        (a["entity"], a["first"], a["rule_id"]): a["count"]
        for a in kept_alerts(folder(run, settings))
    }
    assert {(entity, rule) for entity, _, rule in told} == {
        (A, LOGIN), (A, MANY), (B, LOGIN), (B, MANY), ("192.0.2.9", LOGIN), (IP, LOGIN),
    }  # fmt: skip
    new = result["sides"]["new"]
    assert new["rules"][0]["findings"] == 4 + 3 + 3 + 1 + 1 + 1
    assert new["imported_findings"] == 1
    assert run.finished is not None


def folder(run: Run, settings: Settings) -> Path:
    return settings.home.absolute() / "backtests" / run.id


@pytest.mark.full
def test_a_backtest_that_was_cut_off_goes_on_where_it_was(lake: Lake, tmp_path: Path) -> None:
    settings = with_rules(lake.settings)
    insert(lake, EVENT, HISTORY)
    insert(lake, DHCP_SEGMENT, SEGMENTS)
    lake = Lake(lake.spark, settings)
    draft = tmp_path / "draft.yml"
    draft.write_text(DRAFT, "utf-8")
    asked = wish(settings, [str(draft)], LOGIN)

    def cut(sentence: str) -> None:
        if "2 of" in sentence:
            raise Cut

    first = begin_backtest(settings, asked)
    with pytest.raises(Cut):
        Backtest(settings, lambda: lake, first).through(cut)
    insert(lake, EVENT, [login("new", 20)])  # the run goes on with what there was when it began
    left = {f: f.stat().st_mtime_ns for f in (folder(first, settings) / "findings").iterdir()}

    result, run = result_of(settings, lake, asked)

    assert run.id == first.id
    assert set(run.chunks) == {"0", "1", "2", "3"}
    assert left
    assert result["difference"]["findings"] == {"gained": 1, "lost": 0, "same": 13}
    assert result["difference"]["alerts"]["lost"] == 0
    again = begin_backtest(settings, asked)
    assert again.id != run.id
    assert [one.id for one in stored_backtests(settings)] == [again.id, run.id]


@pytest.mark.full
def test_a_backtest_whose_files_were_deleted_in_part_begins_anew(lake: Lake) -> None:
    settings = with_rules(lake.settings)
    lake = Lake(lake.spark, settings)
    insert(lake, DHCP_SEGMENT, SEGMENTS)
    insert(lake, EVENT, HISTORY)
    insert(lake, EVENT, [login("more", 40)])
    asked = wish(settings, [LOGIN])
    first = begin_backtest(settings, asked)
    assert begin_backtest(settings, asked).id == first.id
    # As after an erasure with --vacuum: a file of the run's version is gone, the others are there.
    few = min(active_files(lake.spark, lake.path(EVENT)), key=lambda file: file.rows)
    lake.replace(EVENT, [few], [], "test")
    maintenance.vacuum(lake, EVENT, timedelta(0))

    result, run = result_of(settings, lake, asked)
    assert run.id != first.id
    assert run.finished is not None
    assert result["sides"]["new"]


def test_old_results_and_runs_that_nobody_resumes_go(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backtest_run, "KEEP", 1)
    now = datetime.now(UTC)
    ages = {"new": 1, "old": 2, "left": 25, "fresh": 3, "at-work": 30}
    for name, hours in ages.items():
        began = (now - timedelta(hours=hours)).isoformat()
        run = Run(name, "", [], None, began, began, began, 1, {}, {}, {}, began)
        run.finished = began if name in ("new", "old") else None
        backtest_folder(home).joinpath(name).mkdir(parents=True)
        backtest_folder(home).joinpath(name, "run.json").write_text(
            json.dumps(asdict(run)), "utf-8"
        )
    lock = JobLock(backtest_folder(home) / "at-work", "backtest at-work")
    forget_backtest(home)
    lock.release()
    assert [run.id for run in stored_backtests(home)] == ["new", "fresh", "at-work"]


def test_the_command_shows_a_result_that_was_kept(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    __main__.build(parser.add_subparsers())
    args = parser.parse_args(["rules", "backtests", "--output", "json"])
    assert args.run(args, home) == 0
    assert json.loads(capsys.readouterr().out) == []
    args = parser.parse_args(["rules", "backtest", "guessing", "--from", "2d", "--to", "3d"])
    with pytest.raises(Usage, match="--from 2d: not before --to 3d"):
        args.run(args, home)
