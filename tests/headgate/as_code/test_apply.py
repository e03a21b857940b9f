"""A folder comes into force as one: all of it, once, and through the end of a process anywhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from alerts.delivery.action_request import waiting_requests
from alerts.rulebook.rule_switch import switch_off, switch_on
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from headgate import cli
from headgate.as_code.apply import begin_apply, finish_apply, unfinished_apply
from headgate.as_code.export import export_folder
from headgate.as_code.plan import planned_folder, state_in_force
from headgate.as_code.state import ConfigState
from infra.config.settings import Settings
from infra.process.os_user import acting_user
from tests.headgate.as_code.desk import RULE, files_of, made_home


class Killed(Exception):
    """The process ends here."""


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return made_home(tmp_path)


def edited(home: Settings, folder: Path) -> None:
    """An export with an object of every kind added, one changed and one gone."""
    export_folder(home, folder)
    root = folder / "rules" / "own" / "team" / "root.yml"
    root.write_text(RULE.replace("level: medium", "level: high"))
    other = RULE.replace("d2b01", "d2b09").replace("own_root_login", "own_second")
    (folder / "rules" / "own" / "second.yml").write_text(other)
    (folder / "rules" / "own" / "domains.yml").unlink()
    (folder / "indicators" / "bad-domains.csv").unlink()
    (folder / "indicators" / "worse.csv").write_text("kind,value\ndomain,worse.example\n")
    (folder / "rules-off.yml").write_text("own_second: too new\n")
    (folder / "queries" / "logins.yml").write_text("sql: SELECT 2 AS n\nwho: ann\n")
    (folder / "queries" / "daily.yml").write_text("sql: SELECT 1 AS n\nevery_minutes: 1440\n")
    text = (folder / "suppressions.yml").read_text()
    changed = text.replace("reason: pentest", "reason: second week")
    (folder / "suppressions.yml").write_text(changed + text.replace("10.4.0.0/16", "10.5.0.0/16"))


def apply(home: Settings, folder: Path, reached: Callable[[str], None]) -> int:
    """Apply with removals; how many changes there were."""
    finish_apply(home, reached)
    with planned_folder(home, folder, True) as (plan, reading, _):
        assert plan.problems == ()
        if plan.changes:
            begin_apply(home, reading, plan.changes, folder, reached)
        return len(plan.changes)


def pack_of(home: Settings) -> RulePack:
    store = PackStore(store_folder(home))
    return store.get(store.current())


def test_what_was_applied_is_in_force_and_a_second_time_changes_nothing(
    home: Settings, tmp_path: Path
) -> None:
    edited(home, tmp_path / "repository")
    steps: list[str] = []
    assert apply(home, tmp_path / "repository", steps.append) == 11
    assert [rule.level for rule in pack_of(home).rules] == ["high"], "one is on, the new one off"
    assert unfinished_apply(home) is None
    exported = tmp_path / "again"
    export_folder(home, exported)
    wanted = files_of(tmp_path / "repository")
    wanted["queries/logins.yml"] = (
        "doc: ''\nevery_minutes: 0\nkeep_days: 7\nsql: SELECT 2 AS n\nwho: ann\n"
    )
    wanted["queries/daily.yml"] = (
        f"doc: ''\nevery_minutes: 1440\nkeep_days: 7\nsql: SELECT 1 AS n\nwho: {acting_user()}\n"
    )
    # The list is written with all its columns, in order.
    wanted["indicators/worse.csv"] = "kind,value,label,valid_until\ndomain,worse.example,,\n"
    assert files_of(exported) == wanted
    requests = len(waiting_requests(home))
    assert apply(home, tmp_path / "repository", steps.append) == 0
    assert len(waiting_requests(home)) == requests
    assert steps.index("rule own/second.yml") < steps.index("compile")
    assert steps.index("indicators worse") < steps.index("compile")


def test_a_rule_is_in_force_only_with_everything_else_that_is_compiled(
    home: Settings, tmp_path: Path
) -> None:
    edited(home, tmp_path / "repository")
    before = pack_of(home).hash

    def look(step: str) -> None:
        if not step.startswith(("query", "suppression", "audit", "done")):
            assert pack_of(home).hash == before, step

    apply(home, tmp_path / "repository", look)
    assert pack_of(home).hash != before


@pytest.mark.full
def test_an_apply_that_is_killed_before_any_step_is_finished_by_the_next(
    home: Settings, tmp_path: Path
) -> None:
    edited(home, tmp_path / "repository")
    steps: list[str] = []
    first = copied(home, tmp_path, "whole")
    apply(first, tmp_path / "repository", steps.append)
    wanted = applied(first)
    for number, step in enumerate(steps):
        copy = copied(home, tmp_path, f"killed-{number}")
        with pytest.raises(Killed):
            apply(copy, tmp_path / "repository", killed_after(number))
        assert (unfinished_apply(copy) is None) == (step in ("stage", "journal"))
        apply(copy, tmp_path / "repository", lambda _: None)
        assert applied(copy) == wanted, step
        assert unfinished_apply(copy) is None
        assert list((copy.home / "apply").glob("*/")) == []
        begun = [row for row in waiting_requests(copy) if row["action"] == "suppress"]
        assert len(begun) == 3, f"{step}: none begins twice"
    assert len(steps) > 20


def applied(home: Settings) -> ConfigState:
    """What is in force but for settings, which name the place of the rules."""
    return {kind: objects for kind, objects in state_in_force(home).items() if kind != "setting"}


def copied(home: Settings, tmp_path: Path, name: str) -> Settings:
    """The home and its rules once more, in a place of their own."""
    place = tmp_path / name
    shutil.copytree(home.home, place / "home")
    shutil.copytree(tmp_path / "own", place / "own")
    alerts = home.alerts.model_copy(update={"rules": (place / "own",)})
    return home.model_copy(update={"home": place / "home", "alerts": alerts})


def killed_after(steps: int) -> Callable[[str], None]:
    """Lets so many steps begin, and ends the process before the next."""
    left = iter(range(steps))

    def reached(step: str) -> None:
        if next(left, None) is None:
            raise Killed(step)

    return reached


@pytest.fixture
def run(home: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    config = tmp_path / "headgate.toml"
    config.write_text(
        f'home = "{home.home}"\n[alerts]\nrules = ["{home.alerts.rules[0]}"]\nbundled = false\n'
    )
    monkeypatch.setenv("HEADGATE_CONFIG", str(config))
    return lambda *words: cli.main(list(words))


def test_just_the_plan_that_somebody_looked_at_is_applied(
    home: Settings, tmp_path: Path, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, plan = tmp_path / "repository", tmp_path / "plan.json"
    edited(home, folder)
    assert run("plan", str(folder), "--prune", "--out", str(plan)) == 2
    switch_on(home, "own_root_login")
    assert run("apply", str(folder), "--plan", str(plan), "--yes") == 1
    assert "changed since the plan, in force or in the folder" in capsys.readouterr().err
    assert (tmp_path / "own" / "domains.yml").exists(), "nothing was applied"
    switch_off(home, "own_root_login", "ann", "noisy")
    assert run("apply", str(folder), "--plan", str(plan)) == 1
    assert "--yes applies without asking" in capsys.readouterr().err
    assert run("apply", str(folder), "--plan", str(plan), "--yes") == 0
    assert run("plan", str(folder), "--prune") == 0
    audited = [json.loads(f.read_text()) for f in (home.home / "spool" / "audit").glob("config-*")]
    assert {row["act"] for row in audited} == {"config.add", "config.change", "config.remove"}
    assert len(audited) == 11


def test_a_folder_with_a_problem_changes_nothing(
    home: Settings, tmp_path: Path, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "repository"
    edited(home, folder)
    (folder / "rules-off.yml").write_text("nobody: x\n")
    before = state_in_force(home)
    assert run("apply", str(folder), "--prune", "--yes") == 1
    assert state_in_force(home) == before
    assert run("plan", str(folder), "--out", str(tmp_path / "plan.json")) == 1
    assert not (tmp_path / "plan.json").exists()


def test_without_prune_what_is_not_in_the_folder_stays_in_force(
    home: Settings, tmp_path: Path, run: Callable[..., int]
) -> None:
    folder = tmp_path / "repository"
    edited(home, folder)
    assert run("apply", str(folder), "--yes") == 0
    assert (tmp_path / "own" / "domains.yml").exists()
    assert (tmp_path / "own" / "second.yml").exists()
    assert run("plan", str(folder)) == 0
    assert run("plan", str(folder), "--prune") == 2


def test_a_plan_says_that_an_apply_ended_midway_and_the_next_apply_finishes_it_first(
    home: Settings, tmp_path: Path, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "repository"
    edited(home, folder)

    def reached(step: str) -> None:
        if step == "compile":
            raise Killed

    with pytest.raises(Killed):
        apply(home, folder, reached)
    assert run("plan", str(folder)) == 1
    assert "ended midway; 'headgate apply' finishes it" in capsys.readouterr().err
    assert run("apply", str(folder), "--yes") == 0
    assert "finished first: apply of" in capsys.readouterr().err
    assert run("plan", str(folder), "--prune") == 0


def test_an_apply_that_fails_midway_says_so(
    home: Settings,
    tmp_path: Path,
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "repository"
    edited(home, folder)
    spool = home.home / "spool" / "alert_action"
    shutil.rmtree(spool)
    spool.write_text("no folder")
    assert run("apply", str(folder), "--prune", "--yes") == 1
    assert "ended midway; 'headgate apply' finishes it" in capsys.readouterr().err
    spool.unlink()
    assert run("apply", str(folder), "--prune", "--yes") == 0
    assert run("plan", str(folder), "--prune") == 0
