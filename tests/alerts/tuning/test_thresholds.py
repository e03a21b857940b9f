"""`headgate rules thresholds`: figures of other numbers are those of the rule that has them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from alerts.cli.rulebook import thresholds as command
from alerts.correlation.conditions import asks_absence
from alerts.correlation.correlator import Correlator
from alerts.correlation.group import CorrelationState
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulepack.rule_pack import Correlation
from alerts.tuning.threshold_file import changed_document, compiled_draft, rule_document
from alerts.tuning.thresholds import (
    MOST_CHOICES,
    ThresholdHistory,
    counts_around,
    evaluate_threshold,
    threshold_choices,
    timespan_text,
)
from infra.config.settings import Settings, load
from infra.errors import Usage
from tests.alerts.cli.test_rules import run
from tests.alerts.correlation_history import Point, correlation, cut, row, streamed
from tests.alerts.history import LOGIN, MANY, rules_in
from tests.alerts.tuning.history import Asked, Row, alert
from tests.examples import examples
from tests.reporting.memory_lake import MemoryLake

START = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=3)
WRITE = ["--owner", "ann", "--reason", "a scanner"]


def points() -> st.SearchStrategy[list[Point]]:
    """Findings of three rules and two groups within some minutes."""
    one = st.tuples(
        st.integers(0, 400), st.sampled_from("abc"), st.sampled_from(["Ann", "bob"]),
        st.sampled_from([None, "1", "2", "3", "40"]),
    )  # fmt: skip
    return st.lists(one, max_size=30).map(
        lambda rows: [
            Point(n, *values) for n, values in enumerate(sorted(rows, key=lambda r: r[0]))
        ]
    )


def whole(rows: Sequence[Row]) -> ThresholdHistory:
    since = rows[0]["event_time"] if rows else START
    return ThresholdHistory(tuple(rows), {}, since, since + timedelta(days=1))


@given(
    points(),
    st.sampled_from(["event_count", "value_count", "value_sum", "value_avg"]),
    st.sampled_from(["gt", "gte", "lt", "eq"]),
    st.integers(1, 8),
    st.integers(20, 200),
    st.integers(0, 2**32),
)
@examples(150, deadline=None)
def test_the_figure_of_a_choice_is_that_of_a_full_run_with_that_rule(
    history: list[Point], kind: str, op: str, count: int, window: int, seed: int
) -> None:
    (choice,) = threshold_choices(
        [correlation(type=kind, op=op)], [count], [window], correlation(type=kind, op=op)
    )
    # Fewer than one is none at all: a silence is told by the clock, which stands here at the end.
    assume(not asks_absence(choice))
    rows = sorted(map(row, history), key=lambda r: (r["event_time"], r["finding_id"]))
    outcome = evaluate_threshold(choice, whole(rows), load())
    # Through the state that job `alert` keeps, in batches and through bytes: what a stream tells.
    told = streamed(choice, cut(rows, random.Random(seed)))
    assert outcome.fires == len(told)
    correlator, outputs = Correlator(CorrelationState()), []
    for each in rows:
        outputs += correlator.feed(choice, each)
    outputs += correlator.settle(choice)
    assert outcome.fires == len([out for out in outputs if out["out"] == "finding"])
    assert outcome.alerts <= outcome.fires
    assert (outcome.alerts > 0) == (outcome.fires > 0)


def guesses(ip: str, many: int, start: datetime, apart: int = 10) -> list[Row]:
    """Refused logins from an address, as gold.finding has them."""
    return [
        {
            "finding_id": f"{ip}-{start:%d%H%M}-{n}", "rule_id": LOGIN, "rule_version": "1",
            "rule_title": "Login failed", "level": "medium", "kind": "event", "pack": "p",
            "feeds": [MANY], "alerting": False, "event_uid": f"{ip}-{start:%d%H%M}-e{n}",
            "event_time": start + timedelta(seconds=apart * n),
            "received_at": start + timedelta(seconds=apart * n + 2), "source": "sshd",
            "mode": "live", "role": "src_endpoint", "scope": "default", "ip": ip,
            "user_name": f"user{n}", "fields": {}, "snippet": "refused",
        }
        for n in range(many)
    ]  # fmt: skip


def judged(name: str, verdict: str, rows: Sequence[Row]) -> Row:
    named = [{"event_uid": r["event_uid"], "time": r["event_time"].isoformat()} for r in rows]
    return alert(name, MANY, verdict, began=rows[0]["event_time"], evidence=named)


@pytest.fixture(scope="module")
def lake() -> MemoryLake:
    """An attack of twelve guesses that was true, and two forgetful people of four each."""
    attack = guesses("10.0.0.1", 12, START)
    noise = [guesses(f"10.0.0.{n}", 4, START + timedelta(days=1, hours=n)) for n in (2, 3)]
    lake = MemoryLake()
    lake.add("gold.finding", [*attack, *(row for rows in noise for row in rows)])
    lake.add("gold.alert", [
        judged("attack", "true_positive", attack[:3]),
        *(judged(f"noise{n}", "false_positive", rows[:3]) for n, rows in enumerate(noise)),
        judged("gone", "benign", guesses("10.9.9.9", 3, START)),
    ])  # fmt: skip
    return lake


@pytest.fixture
def home(tmp_path: Path, lake: MemoryLake, monkeypatch: pytest.MonkeyPatch) -> Settings:
    @contextmanager
    def asking(_: Settings) -> Iterator[Any]:
        yield Asked(lake).rows

    # Tables in memory stand for the lake: what is asked of them is the same.
    monkeypatch.setattr(command, "asking", asking)
    folder = rules_in(tmp_path / "rules")
    return load(home=tmp_path, alerts={"bundled": False, "rules": (folder,)})


def shown(home: Settings, capsys: pytest.CaptureFixture[str], *words: str) -> list[Row]:
    assert run(home, "thresholds", "guessing", "--output", "json", *words) == 0
    rows: list[Row] = json.loads(capsys.readouterr().out)
    return rows


def test_a_curve_shows_what_a_count_costs_and_keeps(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = shown(home, capsys, "--count", "3,5,20")
    assert [(r["count"], r["alerts"], r["true_kept"], r["noise_kept"]) for r in rows] == [
        (3, 3, 1, 2),
        (5, 1, 1, 0),
        (20, 0, 0, 0),
    ]
    assert [row["now"] for row in rows] == [True, False, False]
    assert rows[0]["alerts_a_day"] > rows[1]["alerts_a_day"] > 0


def test_counts_and_windows_around_the_one_in_force_are_tried_unasked(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "thresholds", "guessing") == 0
    out, err = capsys.readouterr()
    assert sum(" now  " in line for line in out.splitlines()[1:]) == 1
    assert "####" in out
    assert "20 findings counted" in err
    assert "judged: 1 true, 3 noise" in err
    assert "1 judged alerts name no finding that is still there" in err


def test_another_group_is_what_the_compiler_makes_of_it(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = shown(home, capsys, "--group-by", "user.name", "--group-by", "device")
    assert [(row["group_by"], row["fires"]) for row in rows] == [("user.name", 0), ("device", 3)]
    with pytest.raises(Usage, match="no_such"):
        run(home, "thresholds", "guessing", "--group-by", "no_such.field")


def test_a_choice_that_is_kept_replaces_the_rule(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["thresholds", "guessing", "--count", "3,5", "--window", "5m"]
    assert run(home, *words, "--write", "2", *WRITE) == 0
    (path,) = (home.home / "rules").glob("threshold_*.yml")
    compiled = compiled_rules(home)
    assert compiled.refused == ()
    (made,) = compiled.pack.correlations
    assert (made.count, made.timespan_seconds, made.group_by) == (5, 300, ("device",))
    assert made.description == "Threshold by ann: a scanner"
    assert not compiled.sources[MANY].enabled
    assert f"id: {MANY}\n  type: derived" in path.read_text("utf-8")
    assert "guessing is switched off" in capsys.readouterr().err
    with pytest.raises(Usage, match="is there already"):
        run(home, *words, "--write", "2", *WRITE)


def test_what_has_no_threshold_or_is_asked_by_halves_is_refused(home: Settings) -> None:
    with pytest.raises(Usage, match="counts nothing"):
        run(home, "thresholds", "login_failed")
    with pytest.raises(Usage, match="--write needs --owner"):
        run(home, "thresholds", "guessing", "--write", "1")
    with pytest.raises(Usage, match="that is the rule as it is"):
        run(home, "thresholds", "guessing", "--count", "3", "--write", "1", *WRITE)
    with pytest.raises(Usage, match=f"at most {MOST_CHOICES}"):
        run(home, "thresholds", "guessing", "--count", ",".join(map(str, range(1, 50))))


@given(st.integers(1, 500), st.integers(1, 10_000_000))
@examples(50)
def test_a_changed_text_says_what_was_chosen(count: int, seconds: int) -> None:
    before = {"correlation": {"condition": {"gte": 3}, "timespan": "1m", "group-by": ["a"]}}
    after = changed_document(before, op="gte", count=count, timespan_seconds=seconds)
    assert after["correlation"]["condition"] == {"gte": count}
    sizes = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    text = timespan_text(seconds)
    assert after["correlation"]["timespan"] == text
    assert int(text[:-1]) * sizes[text[-1]] == seconds
    assert before["correlation"]["condition"] == {"gte": 3}


def test_a_draft_of_the_text_is_the_definition_that_was_evaluated(home: Settings) -> None:
    source = compiled_rules(home).sources[MANY]
    assert isinstance(source.rule, Correlation)
    for count in counts_around(source.rule):
        draft = compiled_draft(home, changed_document(rule_document(source), op="gte", count=count))
        plain = msgspec.structs.replace(source.rule, count=count, version=draft.version)
        assert draft == plain
