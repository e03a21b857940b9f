"""`headgate rules tune`: from alerts in the tables to a filter in force."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.cli import tuning
from alerts.delivery.action_request import request_action
from alerts.rulebook.rule_store import recompile
from alerts.tuning.judged_alerts import MOST_ALERTS, rule_history
from alerts.tuning.kept_filters import end_filter, kept_filters
from alerts.tuning.rule_tuning import tunable_rule
from infra.config.settings import Settings, load
from infra.errors import Usage
from tests.alerts.cli.test_rules import run
from tests.alerts.history import LOGIN, rules_in
from tests.alerts.tuning.history import SINCE, UNTIL, Asked, Row, alert
from tests.reporting.memory_lake import MemoryLake

BEGAN = UNTIL - timedelta(days=1)
KEPT = ["--owner", "ann", "--reason", "backup", "--expires", "2999-01-01"]


def named(*uids: str, total: int = 1) -> Row:
    evidence = [{"event_uid": uid, "time": BEGAN.isoformat()} for uid in uids]
    return {"evidence": evidence, "evidence_total": max(total, len(uids))}


def a_lake() -> MemoryLake:
    """Three alerts about `svc` that were false, one about `root` that was true."""
    lake = MemoryLake()
    lake.add("gold.alert", [
        *(alert(f"f{n}", LOGIN, "false_positive", **named(f"svc{n}")) for n in range(3)),
        alert("true", LOGIN, "true_positive", **named("root", "gone", total=40)),
        alert("lost", LOGIN, "false_positive", **named("never")),
        alert("open", LOGIN, **named("svc0")),
        alert("old", LOGIN, "benign", began=SINCE - timedelta(days=9), **named("svc1")),
        alert("other", "another rule", "true_positive", **named("svc0")),
    ])  # fmt: skip
    users = {**{f"svc{n}": "svc" for n in range(3)}, "root": "root"}
    lake.add("silver.event", [
        {"event_uid": uid, "time": BEGAN, "user": {"name": user},
         "src_endpoint": {"ip": f"10.{place}.0.1"}}
        for place, (uid, user) in enumerate(users.items())
    ])  # fmt: skip
    return lake


@pytest.fixture(scope="module")
def lake() -> MemoryLake:
    return a_lake()


@pytest.fixture
def home(tmp_path: Path, lake: MemoryLake, monkeypatch: pytest.MonkeyPatch) -> Settings:
    @contextmanager
    def asking(_: Settings) -> Iterator[Any]:
        yield Asked(lake).rows

    # Tables in memory stand for the lake: what is asked of them is the same.
    monkeypatch.setattr(tuning, "asking", asking)
    folder = rules_in(tmp_path / "rules")
    return load(home=tmp_path, alerts={"bundled": False, "rules": (folder,)})


def test_what_is_learned_from_says_what_it_lacks(lake: MemoryLake) -> None:
    history = rule_history(Asked(lake).rows, LOGIN, SINCE)
    assert history.verdicts == {"": 1, "benign": 1, "false_positive": 4, "true_positive": 1}
    assert history.without_events == {"false_positive": ("lost",), "true_positive": ("true",)}
    assert (history.partly, history.older, history.left_out) == (1, 1, 0)
    kept = {judged.alert_id: judged for judged in history.alerts}
    assert kept["old"].verdict == "benign before"
    assert len(kept["true"].events) == 1  # what is left of it protects it
    assert MOST_ALERTS > 0


def test_the_filter_that_removes_most_comes_first_and_is_told_whole(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "tune", "login_failed", "--output", "csv", "--days", "3650") == 0
    out, err = capsys.readouterr()
    assert 'user.name = ""svc""' in out.splitlines()[1]
    assert out.splitlines()[1].startswith("1,4,3,1,0,1,0,open")
    assert "1 alerts (false_positive) lack evidence events" in err


def test_nothing_is_written_without_an_owner_a_reason_and_an_end(home: Settings) -> None:
    with pytest.raises(Usage, match="--write needs --owner"):
        run(home, "tune", "login_failed", "--write", "1", "--owner", "ann")
    with pytest.raises(Usage, match="no Sigma rule over events"):
        run(home, "tune", "guessing")
    assert [path.name for path in (home.home / "rules").iterdir()] == ["logins.yml"]


def test_a_filter_that_is_kept_is_in_force(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recompile(home).pack
    assert run(home, "tune", "login_failed", "--days", "3650", "--write", "1", *KEPT) == 0
    (path,) = (home.home / "rules").glob("filter_*.yml")
    after = recompile(home)
    assert after.refused == ()
    assert after.pack.hash in capsys.readouterr().err
    assert after.pack.hash != before.hash
    assert "svc" in str(after.pack.rules[0].predicate)
    assert "author: ann" in path.read_text("utf-8")
    assert run(home, "tune", "login_failed", "--days", "3650", "--output", "json") == 0
    shown, aside = capsys.readouterr()
    first, *others = json.loads(shown)
    assert first["kept"] is True
    assert not any(other["kept"] for other in others)
    assert f"filter 1 is kept already, by ann until 2999-01-01: {path}" in aside


def test_of_two_filters_with_one_id_none_is_ended(home: Settings) -> None:
    """As where a file was copied, or neither has an id."""
    assert run(home, "tune", "login_failed", "--days", "3650", "--write", "1", *KEPT) == 0
    folder = home.home / "rules"
    (path,) = folder.glob("filter_*.yml")
    rule, _ = tunable_rule(home, "login_failed")
    (kept,) = kept_filters(home, rule)
    copied = folder / "filter_copy.yml"
    copied.write_text(path.read_text("utf-8"), "utf-8")
    with pytest.raises(Usage, match=r"several filters have the id .*filter_copy.yml.*in its file"):
        end_filter(home, rule, kept.filter_id)
    assert path.exists()
    assert copied.exists()
    copied.unlink()
    ended, _ = end_filter(home, rule, kept.filter_id)
    assert (ended.path, path.exists()) == (path, False)


def test_without_verdicts_it_says_what_to_do(
    home: Settings, lake: MemoryLake, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    @contextmanager
    def asking(_: Settings) -> Iterator[Any]:
        yield Asked(MemoryLake()).rows

    monkeypatch.setattr(tuning, "asking", asking)
    assert run(home, "tune", "login_failed") == 1
    assert "none of its 0 alerts is judged: headgate alerts close ID" in capsys.readouterr().err
    rule, _ = tunable_rule(home, "login_failed")
    for action, value in (("close", "false_positive"), ("close", None), ("assign", "ann")):
        request_action(home, action, f"{action}-{value}", rule.id, value=value)
    request_action(home, "close", "other", "another-rule", value="benign")
    assert run(home, "tune", "login_failed") == 1
    assert "1 alerts have a verdict that waits for job alert" in capsys.readouterr().err
