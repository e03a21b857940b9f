"""An export says what is in force; a plan says what a folder would change, and changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headgate import cli
from headgate.as_code.export import export_folder
from headgate.as_code.plan import ConfigPlan, planned_folder
from headgate.as_code.rows import plan_rows
from infra.config.settings import Settings, load
from infra.errors import Fatal
from tests.headgate.as_code.desk import ENDS, LISTED, RULE, files_of, made_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    # Of the module: to plan and to export changes nothing in it.
    return made_home(tmp_path_factory.mktemp("as-code"))


@pytest.fixture(scope="module")
def exported(home: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "repository"
    export_folder(home, folder)
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    shutil.copytree(exported, tmp_path / "repository")
    return tmp_path / "repository"


def plan_of(settings: Settings, folder: Path, prune: bool = False) -> ConfigPlan:
    with planned_folder(settings, folder, prune) as (plan, _, _):
        return plan


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_an_export_holds_what_is_in_force_in_files_that_read_well(folder: Path) -> None:
    files = files_of(folder)
    assert files["rules/own/team/root.yml"] == RULE, "as it is written, comments and all"
    assert files["rules/own/domains.yml"] == LISTED
    assert files["rules-off.yml"] == "own_root_login: noisy\n"
    assert files["suppressions.yml"] == (
        "- entity: 10.4.0.0/16\n"
        f"  expires_at: '{ENDS.isoformat()}'\n"
        "  fields:\n"
        "    user.name: svc-*\n"
        "  owner: ann\n"
        "  reason: pentest\n"
        "  rule: own_root_login\n"
    )
    assert files["indicators/bad-domains.csv"] == (
        "kind,value,label,valid_until\ndomain,evil.example,seen in spring,\nnetwork,10.9.0.0/16,,\n"
    )


def test_an_export_differs_in_nothing_from_what_is_in_force(home: Settings, folder: Path) -> None:
    plan = plan_of(home, folder, prune=True)
    assert (plan.exit_code, plan_rows(plan)) == (0, [])
    before = files_of(folder)
    export_folder(home, folder)
    assert files_of(folder) == before


def test_an_export_takes_the_place_of_a_former_one_and_of_nothing_else(
    home: Settings, folder: Path, tmp_path: Path
) -> None:
    (folder / "rules" / "own" / "gone.yml").write_text(RULE)
    (folder / "README.md").write_text("ours")
    export_folder(home, folder)
    assert not (folder / "rules" / "own" / "gone.yml").exists()
    assert (folder / "README.md").read_text() == "ours"
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    export_folder(home, other)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "thesis.txt").write_text("mine")
    with pytest.raises(Fatal, match="no former export"):
        export_folder(home, strange)
    with pytest.raises(Fatal, match="begin with 'headgate export"):
        plan_of(home, strange)


def test_a_plan_tells_just_what_was_edited(home: Settings, folder: Path) -> None:
    edit(folder / "rules" / "own" / "team" / "root.yml", "level: medium", "level: high")
    edit(folder / "suppressions.yml", "reason: pentest", "reason: pentest, second week")
    with (folder / "indicators" / "bad-domains.csv").open("a") as file:
        file.write("domain,worse.example,,\n")
    (folder / "rules-off.yml").write_text("own_root_login: noisy\nown_bad_domain: feed is stale\n")
    plan = plan_of(home, folder)
    rows = [tuple(row.values())[:6] for row in plan_rows(plan)]
    kind_field_values = {(row[0], row[1], row[3], row[4], row[5]) for row in rows}
    assert plan.exit_code == 2
    assert ("change", "rule", "level", "medium", "high") in kind_field_values
    assert (
        "change", "suppression", "reason", "pentest", "pentest, second week",
    ) in kind_field_values  # fmt: skip
    assert ("change", "indicators", "entries.domain", 1, 2) in kind_field_values
    assert ("add", "rule off", "reason", None, "feed is stale") in kind_field_values
    assert len(plan.changes) == 4


def test_what_is_not_in_the_folder_is_left_unless_it_is_pruned(
    home: Settings, folder: Path
) -> None:
    (folder / "rules-off.yml").unlink()
    (folder / "suppressions.yml").write_text("[]\n")
    (folder / "rules" / "own" / "domains.yml").unlink()
    (folder / "indicators" / "bad-domains.csv").unlink()
    left = plan_of(home, folder)
    assert (left.exit_code, left.changes, len(left.left)) == (0, (), 4)
    gone = plan_of(home, folder, prune=True)
    assert gone.exit_code == 2
    assert {change.action for change in gone.changes} == {"remove"}
    assert len(gone.changes) == 4


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("rules/own/team/root.yml", RULE.replace("User: root", "Usr: root"),
         "does not load"),
        ("rules/own/team/root.yml", RULE.replace("user.name: ann", "user.name: root"), "test 1"),
        ("rules/other/x.yml", RULE, "alerts.rules names no such folder"),
        ("rules-off.yml", "no_such_rule: gone\n", "no such rule"),
        ("suppressions.yml", "- {rulle: x}\n", "unknown key 'rulle'"),
        ("suppressions.yml", "- {reason: x, expires_at: 2090-01-01T00:00:00Z}\n", "everything"),
        ("suppressions.yml", "- {entity: a, reason: x, expires_at: 2090-01-01T00:00:00Z}\n",
         "longer than a year"),
        ("suppressions.yml", "- {entity: a, reason: x, expires_at: 2090-01-01}\n", "expires_at"),
        ("suppressions.yml", "- {rule: nobody, reason: x, expires_at: 2090-01-01T00:00:00Z}\n",
         "no rule 'nobody'"),
        ("suppressions.yml", "- {entity: a, expires_at: 2090-01-01T00:00:00Z}\n", "say why"),
        ("queries/daily.yml", "sql: DROP TABLE silver.event\n", "SELECT"),
        ("queries/daily.yml", "sql: SELECT 1 AS n\nevry_minutes: 5\n", "unknown key 'evry_min"),
        ("queries/daily.yml", "sql: SELECT 1 AS n\nkeep_days: 70\n", "keep_days"),
        ("queries/a b.yml", "sql: SELECT 1 AS n\n", "letters, digits"),
        ("settings.yml", "alrts: {tenant: x}\n", "unknown key 'alrts'"),
        ("settings.yml", "alerts: {tennant: x}\n", "unknown key 'tennant'"),
        ("webhooks.yml", "soar: {url: 'https://a.example/x', secret: s3cret}\n", "file of git"),
        ("webhooks.yml", "soar: {url: 'https://a.example/x', secret_env: NOT_SET}\n",
         "NOT_SET is not set"),
        ("webhooks.yml", "soar: {url: 'https://a.example/x', hue: red}\n", "unknown key 'hue'"),
        ("supressions.yml", "[]\n", "no file of an export"),
        ("suppressions.yml", "- {\n", "not YAML"),
        ("indicators/bad-domains.csv", "kind,value\ndomain,ok.example\ndomain,b.example\nip,x\n",
         "bad-domains.csv:4"),
        ("indicators/no name.csv", "value\nevil.example\n", "letters, digits"),
    ],
)  # fmt: skip
def test_a_folder_with_a_mistake_is_a_problem_that_names_it(
    home: Settings, folder: Path, file: str, content: str, sentence: str
) -> None:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(content)
    plan = plan_of(home, folder)
    assert plan.exit_code == 1
    assert any(sentence in problem.sentence for problem in plan.problems), plan.problems


def test_a_rule_that_loses_its_list_is_a_problem(home: Settings, folder: Path) -> None:
    (folder / "indicators" / "bad-domains.csv").unlink()
    (problem,) = plan_of(home, folder, prune=True).problems
    assert problem.name == "own/domains.yml"
    assert "no list 'bad-domains'" in problem.sentence


def test_settings_and_webhooks_are_told_without_secrets_and_changed_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That of the tests' own platforms would be a setting to tell.
    monkeypatch.delenv("HEADGATE_API__NICE")
    settings = load(
        home=tmp_path / "home",
        alerts={"bundled": False, "tenant": "acme"},
        api={"token": "t0p-secret"},
        webhooks=({"name": "soar", "url": "https://soar.example/x", "secret": "t0p-secret"},),
    )
    folder = tmp_path / "repository"
    export_folder(settings, folder)
    files = files_of(folder)
    assert "t0p-secret" not in "".join(files.values())
    assert files["settings.yml"] == (
        "alerts:\n  bundled: false\n  tenant: acme\napi:\n  token: ${HEADGATE_API__TOKEN}\n"
    )
    assert files["webhooks.yml"] == (
        "soar:\n  secret: kept in the settings\n  url: https://soar.example/x\n"
    )
    assert plan_of(settings, folder).exit_code == 0
    edit(folder / "settings.yml", "acme", "acme2")
    edit(folder / "webhooks.yml", "https://soar.example/x", "https://soar.example/y")
    plan = plan_of(settings, folder)
    assert (plan.exit_code, plan.changes) == (2, ())
    rows = {(row["action"], row["name"], row["before"], row["after"]) for row in plan_rows(plan)}
    assert rows == {
        ("by hand", "alerts.tenant", "acme", "acme2"),
        ("by hand", "soar", "https://soar.example/x", "https://soar.example/y"),
    }
    (folder / "settings.yml").unlink()
    (folder / "webhooks.yml").unlink()
    assert plan_of(settings, folder, prune=True).exit_code == 0, "a kind without its file"


def test_the_commands_print_rows_and_end_with_the_code_that_tells_what_there_is(
    home: Settings,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text(
        f'home = "{home.home}"\n[alerts]\nrules = ["{home.alerts.rules[0]}"]\nbundled = false\n'
    )
    monkeypatch.setenv("HEADGATE_CONFIG", str(config))
    assert cli.main(["plan", str(folder)]) == 0
    edit(folder / "rules-off.yml", "noisy", "very noisy")
    capsys.readouterr()
    assert cli.main(["plan", str(folder), "--output", "json"]) == 2
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["action"], row["before"], row["after"]) == ("change", "noisy", "very noisy")
    assert row["note"] == "Root login from the jump host"
    assert cli.main(["export", str(folder)]) == 0
    assert "1 rule off" in capsys.readouterr().err
    assert (folder / "rules-off.yml").read_text() == "own_root_login: noisy\n"
    (folder / "typo.yml").write_text("")
    assert cli.main(["plan", str(folder)]) == 1
