"""`headgate rules`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from alerts.cli import __main__
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings, load
from infra.errors import Usage

BROKEN = "title: Broken\nid: broken\nlogsource: {product: ocsf}\n"


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    __main__.build(parser.add_subparsers())
    args = parser.parse_args(["rules", *words])
    code: int = args.run(args, settings)
    return code


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load(home=tmp_path)


def test_list_shows_every_rule_with_its_state(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "list", "--output", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) >= 19
    assert {row["state"] for row in rows if row["kind"] != "model"} == {"on"}
    models = [row["state"] for row in rows if row["kind"] == "model"]
    assert models == [
        f"untrained (headgate models train {name})"
        for name in ("device_rare_steps", "device_unusual_volume")
    ]
    for output in ("table", "csv", "ndjson"):
        assert run(home, "list", "--output", output) == 0
        assert "ssh_login_failed" in capsys.readouterr().out


def test_test_runs_the_rules_own_events(home: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home, "test", "host_scan", "--output", "ndjson") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(row["passed"] for row in rows)
    assert {row["must"] for row in rows} == {
        "match",
        "not match",
    }


@pytest.mark.full
def test_rules_of_kind_model_are_tested_previewed_and_backtested_by_the_same_commands(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "device_unusual_volume"
    assert run(home, "test", name, "host_scan", "--output", "json") == 0
    tested = json.loads(capsys.readouterr().out)
    assert {row["title"] for row in tested} >= {"Device moves far more than it ever does"}
    assert all(row["passed"] for row in tested)
    for words in (("preview", name), ("backtest", name, "--from", "7d")):
        with pytest.raises(Usage, match=f"no model yet: headgate models train {name}"):
            run(home, *words)
    with pytest.raises(Usage, match="backtest it by itself"):
        run(home, "backtest", "host_scan", name, "--from", "7d")
    with pytest.raises(Usage, match="--model HASH"):
        run(home, "backtest", name, "--from", "7d", "--against", "current")


def test_disable_and_enable_change_the_pack_in_force(home: Settings) -> None:
    assert run(home, "enable", "host_scan") == 0
    store = PackStore(store_folder(home))
    everything = store.current()
    assert run(home, "disable", "host_scan", "--reason", "noisy") == 0
    fewer = store.get(store.current())
    assert "host_scan" not in {c.name for c in fewer.correlations}
    (switch,) = store.disabled().values()
    assert switch.reason == "noisy"
    assert switch.who
    assert run(home, "enable", "host_scan") == 0
    assert store.current() == everything


def test_a_rule_nobody_has_is_a_usage_error(home: Settings) -> None:
    with pytest.raises(Usage, match="no rule 'nope'"):
        run(home, "disable", "nope")


def test_a_refused_rule_is_told_on_stderr_and_the_others_are_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "broken.yml").write_text(BROKEN, "utf-8")
    settings = load(home=tmp_path, alerts={"rules": [str(folder)]})
    assert run(settings, "list") == 1
    assert "refused: broken" in capsys.readouterr().err
    assert run(settings, "disable", "host_scan") == 0
    with pytest.raises(Usage, match="is refused"):
        run(settings, "enable", "broken")


def test_a_refused_rule_is_told_as_refused_by_id_name_and_file(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "bad.yml").write_text(BROKEN + "name: 'my_rule'\n", "utf-8")
    settings = load(home=tmp_path / "home", alerts={"rules": (rules,)})
    for name in ("broken", "my_rule", "bad"):
        with pytest.raises(Usage, match=f"rule '{name}' is refused: "):
            run(settings, "test", name)
    with pytest.raises(Usage, match="no rule 'another'"):
        run(settings, "test", "another")
