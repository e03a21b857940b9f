"""Rules in shadow: they find and nothing else, until they are promoted or dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.cli.rulebook import shadow as command
from alerts.compiler.compiler import RuleSource
from alerts.matching.event_rows import event_batch
from alerts.matching.matcher import Matcher
from alerts.rollout.shadow import (
    ShadowWish,
    drop_rules,
    promote_rules,
    shadow_file,
    shadow_ids,
    shadow_rules,
)
from alerts.rulebook.rule_store import recompile
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulebook.rule_tests import complete
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Correlation, PackStore, RulePack
from alerts.rulepack.shadow_marks import ShadowMarks
from infra.config.settings import AlertSettings, Settings, load
from infra.errors import Usage
from tests.alerts.cli.test_rules import run
from tests.alerts.tuning.history import Asked, finding
from tests.reporting.memory_lake import MemoryLake

ROOT, MANY = "55555555-0000-4000-8000-000000000001", "55555555-0000-4000-8000-000000000002"
RULE = """\
title: Root logs in
name: root_login
id: {id}
level: high
logsource: {{product: ocsf, category: authentication}}
detection:
  who: {{user.name: {user}}}
  condition: who
"""
COUNTED = """\
title: Many of root
name: many_roots
id: {id}
level: high
correlation:
  {{type: event_count, rules: [root_login], group-by: [user.name], timespan: 5m,
   condition: {{gte: 3}}}}
"""
WISH = ShadowWish("ann", "is it loud?", 7)


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / "root.yml").write_text(RULE.format(id=ROOT, user="root"), "utf-8")
    return load(home=tmp_path, alerts=AlertSettings(bundled=False, rules=(folder,)))


def source(settings: Settings, rule_id: str) -> RuleSource:
    return compiled_rules(settings).sources[rule_id]


def in_force(settings: Settings) -> RulePack:
    store = PackStore(store_folder(settings))
    return store.get(store.current())


def found_in(pack: RulePack, user: str = "root") -> dict[str, Any]:
    event = complete({"class_uid": 3002, "user": {"name": user}, "user_name": user})
    rows: list[dict[str, Any]] = Matcher(pack, ("live",)).match(event_batch([event])).to_pylist()
    return {row["rule_id"]: row for row in rows}


def test_a_rule_in_shadow_finds_and_alerts_nobody_until_it_is_promoted(home: Settings) -> None:
    before = recompile(home).pack
    pack = shadow_rules(home, [ROOT], WISH)
    (rule,) = pack.rules
    assert (rule.in_shadow, rule.alerting, rule.version) == (True, False, before.rules[0].version)
    row = found_in(pack)[ROOT]
    assert (row["alerting"], row["feeds"]) == (False, [])
    assert RulePack.from_json(pack.to_json()) == pack

    assert promote_rules(home, [ROOT], "ann", "quiet").hash == before.hash
    assert in_force(home).hash == before.hash
    with pytest.raises(Usage, match="is in shadow; 'headgate rules shadow' lists them"):
        promote_rules(home, [ROOT], "ann", "again")


def test_a_rule_that_is_dropped_is_off(home: Settings) -> None:
    shadow_rules(home, [ROOT], WISH)
    assert drop_rules(home, shadow_ids(home, ["root_login"]), "bob", "loud").rules == ()
    switch = PackStore(store_folder(home)).disabled()[ROOT]
    assert (switch.who, switch.reason) == ("bob", "loud")
    assert ShadowMarks(store_folder(home)).ids() == set()


def test_a_correlation_in_shadow_counts_and_silences_nobody(home: Settings) -> None:
    many = home.alerts.rules[0] / "many.yml"
    many.write_text(COUNTED.format(id=MANY), "utf-8")
    assert not recompile(home).pack.rules[0].alerting, "live, it speaks for the rule it counts"
    pack = shadow_rules(home, [MANY], WISH)
    assert (pack.rules[0].alerting, pack.rules[0].feeds) == (True, (MANY,))
    assert not pack.correlations[0].alerting

    both = shadow_rules(home, [ROOT], WISH)
    assert both.rules[0].feeds == (MANY,)
    live = promote_rules(home, [MANY], "ann", "")
    # What a rule in shadow says must not make a live correlation speak.
    assert (live.rules[0].in_shadow, live.rules[0].feeds) == (True, ())


def test_a_new_rules_file_is_in_shadow_from_the_first(home: Settings, tmp_path: Path) -> None:
    draft = tmp_path / "draft.yml"
    new = "55555555-0000-4000-8000-000000000003"
    draft.write_text(
        RULE.format(id=new, user="admin").replace("root_login", "admin_login"), "utf-8"
    )
    rule_id, pack = shadow_file(home, draft, WISH)
    assert rule_id == new
    assert {rule.id: rule.in_shadow for rule in pack.rules} == {ROOT: False, new: True}
    assert source(home, new).path.parent == home.alerts.rules[0]

    draft.write_text("title: broken\n", "utf-8")
    marks = ShadowMarks(store_folder(home)).all()
    with pytest.raises(Usage):
        shadow_file(home, draft, WISH)
    assert ShadowMarks(store_folder(home)).all() == marks


def test_a_changed_text_runs_beside_its_rule_and_takes_its_place(
    home: Settings, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.yml"
    changed.write_text(RULE.format(id=ROOT, user="[root, toor]"), "utf-8")
    rule_id, pack = shadow_file(home, changed, WISH)
    assert rule_id != ROOT
    assert found_in(pack)[ROOT]["alerting"]
    assert set(found_in(pack, "toor")) == {rule_id}
    # Without its mark it is a second text of a live rule all the same.
    ShadowMarks(store_folder(home)).lift([rule_id])
    assert not found_in(recompile(home).pack, "toor")[rule_id]["alerting"]
    with pytest.raises(Usage, match="drop it"):
        promote_rules(home, [rule_id], "ann", "")

    assert shadow_file(home, changed, WISH)[0] == rule_id
    promoted = promote_rules(home, [rule_id], "ann", "quiet")
    assert [rule.id for rule in promoted.rules] == [ROOT]
    assert found_in(promoted, "toor")[ROOT]["alerting"]
    assert source(home, ROOT).path.read_text("utf-8") == changed.read_text("utf-8")


def test_a_changed_text_that_is_dropped_leaves_its_rule_as_it_was(
    home: Settings, tmp_path: Path
) -> None:
    before = recompile(home).pack
    changed = tmp_path / "changed.yml"
    changed.write_text(RULE.format(id=ROOT, user="toor"), "utf-8")
    rule_id, _ = shadow_file(home, changed, WISH)
    assert drop_rules(home, [rule_id], "ann", "loud").hash == before.hash
    assert PackStore(store_folder(home)).disabled() == {}


def test_the_report_tells_the_alerts_that_would_have_been(
    home: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    since = datetime.now(UTC) - timedelta(days=2)
    pack = shadow_rules(home, [ROOT], WISH)
    marks = ShadowMarks(store_folder(home))
    known = marks.all()[ROOT]
    marks.put({ROOT: type(known)("ann", "is it loud?", since, known.until)})
    rows = [
        finding(
            f"e{number}", ROOT, time=since + timedelta(minutes=number), level="high",
            received_at=since + timedelta(minutes=number), alerting=False, feeds=[], mode="live",
            pack=pack.hash, rule_version="1", rule_title="Root logs in", source="s",
            host_name=f"host{number % 2}",
            role="device", snippet="x", fields={},
        )
        for number in range(-1, 6)
    ]  # fmt: skip
    asked = Asked(MemoryLake().add("gold.finding", rows))

    @contextmanager
    def asking(_: Settings) -> Iterator[Any]:
        yield asked.rows

    monkeypatch.setattr(command, "asking", asking)
    assert run(home, "shadow", "--output", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    # Six since then: repeats of a host fold into its alert.
    assert (row["rule"], row["findings"], row["alerts"], row["a_day"]) == ("root_login", 6, 2, 1.0)
    assert row["most"] == "host0 (1), host1 (1)"


def test_a_whole_pack_is_tried_and_then_goes_live(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recompile(home).pack
    with pytest.raises(Usage, match="add --yes if it is these"):
        run(home, "shadow", "--pack", "team")
    assert "root_login" in capsys.readouterr().out
    assert [rule.in_shadow for rule in in_force(home).rules] == [False]
    assert run(home, "shadow", "--pack", "team", "--yes") == 0
    assert [rule.in_shadow for rule in in_force(home).rules] == [True]
    with pytest.raises(Usage, match="then add --yes"):
        run(home, "promote", "--level", "high")
    assert run(home, "promote", "--pack", "team", "--yes") == 0
    assert in_force(home).hash == before.hash
    with pytest.raises(Usage, match="no rule in shadow is meant"):
        run(home, "drop", "--pack", "team", "--yes")


def test_the_commands_say_when_a_rule_is_in_shadow(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "shadow", "root_login", "--days", "3", "--reason", "is it loud?") == 0
    assert run(home, "list", "--output", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    until = datetime.now(UTC) + timedelta(days=3)
    assert row["state"].startswith(f"shadow until {until:%Y-%m-%d} (")
    assert row["alerts"] == "no"
    assert run(home, "promote", "root_login") == 0
    with pytest.raises(Usage, match="no rule 'root_login' is in shadow"):
        run(home, "drop", "root_login")
    with pytest.raises(Usage, match="--days 0: from 1 to 90"):
        run(home, "shadow", "root_login", "--days", "0")
    assert not any(isinstance(s.rule, Correlation) for s in compiled_rules(home).sources.values())
