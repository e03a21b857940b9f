"""Several rules at once: chosen by name and by what their files say, switched together."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.rulebook.rule_choice import RuleCriteria, chosen_rules
from alerts.rulebook.rule_store import model_rules, read_rule_files
from alerts.rulebook.rule_switch import id_of_alerts, rule_id_of, switch_rules
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import AlertSettings, Settings, load
from infra.errors import Usage

RULE = """\
title: {name}
name: {name}
id: 33333333-0000-4000-8000-00000000000{number}
status: {status}
level: {level}
logsource: {{product: {product}, category: process_creation}}
tags: [attack.execution, {tag}]
detection:
  tool: {{Image|endswith: /{name}}}
  condition: tool
"""
RULES = (
    ("curl", "stable", "high", "linux", "attack.t1059.004"),
    ("wget", "test", "low", "linux", "attack.t1059"),
    ("cmd", "deprecated", "high", "windows", "attack.t1105"),
)


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    folder = tmp_path / "team"
    folder.mkdir()
    for number, (name, status, level, product, tag) in enumerate(RULES, 1):
        text = RULE.format(
            number=number, name=name, status=status, level=level, product=product, tag=tag
        )
        (folder / f"{name}.yml").write_text(text, "utf-8")
    return load(home=tmp_path, alerts=AlertSettings(bundled=False, rules=(folder,)))


@pytest.mark.parametrize(
    ("criteria", "names"),
    [
        (RuleCriteria(tags=("attack.t1059",)), {"curl", "wget"}),
        (RuleCriteria(tags=("ATTACK.T1059.004",)), {"curl"}),
        (RuleCriteria(levels=("high",)), {"curl", "cmd"}),
        (RuleCriteria(levels=("high",), products=("linux",)), {"curl"}),
        (RuleCriteria(statuses=("stable", "deprecated")), {"curl", "cmd"}),
        (RuleCriteria(packs=("team",)), {"curl", "wget", "cmd"}),
    ],
)
def test_rules_are_chosen_by_what_their_files_say(
    home: Settings, criteria: RuleCriteria, names: set[str]
) -> None:
    for _ in range(2):  # the second time from what was compiled before
        files = read_rule_files(home)
        assert {s.rule.name for s in chosen_rules(files, (), criteria).values()} == names
        files.put_in_force()


def test_names_join_what_the_criteria_choose_and_unknown_words_are_refused(home: Settings) -> None:
    files = read_rule_files(home)
    both = chosen_rules(files, ["wget"], RuleCriteria(levels=("high",)))
    assert {source.rule.name for source in both.values()} == {"curl", "wget", "cmd"}
    with pytest.raises(Usage, match="no rule 'nope'"):
        chosen_rules(files, ["nope"], RuleCriteria())
    with pytest.raises(Usage, match="no level 'huge'; there are informational"):
        RuleCriteria(levels=("huge",))
    with pytest.raises(Usage, match="no pack 'nope'; there are bundled, team"):
        chosen_rules(files, (), RuleCriteria(packs=("nope",)))
    with pytest.raises(Usage, match="no rule is like that: of 3 are left out 3 by product"):
        chosen_rules(files, (), RuleCriteria(products=("macos",)))


def test_a_bulk_switch_changes_only_what_is_not_so_already_and_keeps_reasons(
    home: Settings,
) -> None:
    files = read_rule_files(home)
    every = [source.rule.id for source in files.compiled().sources.values()]
    first, *rest = sorted(every)
    switch_rules(files, [first], "ann", "noisy", on=False, dry=False)
    looked = switch_rules(files, every, "bob", "all", on=False, dry=True)
    assert (sorted(looked.changed), looked.pack) == (rest, None)
    store = PackStore(store_folder(home))
    assert set(store.disabled()) == {first}

    done = switch_rules(files, rest[:1], "bob", "all", on=False, dry=False)
    assert done.pack is not None
    assert [rule.id for rule in done.pack.rules] == rest[1:]
    assert store.current() == done.pack.hash
    assert store.disabled()[first].reason == "noisy"

    again = switch_rules(files, every, "bob", "", on=True, dry=False)
    assert sorted(again.changed) == sorted([first, rest[0]])
    assert store.get(store.current()) == read_rule_files(home).compiled().pack


def test_an_id_may_be_shortened_where_one_rule_begins_so(home: Settings) -> None:
    compiled = read_rule_files(home).compiled()
    whole = rule_id_of(compiled, "curl")
    assert whole.startswith("33333333-0000")
    assert rule_id_of(compiled, whole) == whole
    with pytest.raises(Usage, match="rule '33333333' may be several"):
        rule_id_of(compiled, "33333333")
    with pytest.raises(Usage, match="no rule '333'"):
        rule_id_of(compiled, "333")
    compiled.sources.pop(rule_id_of(compiled, "wget"))
    compiled.sources.pop(rule_id_of(compiled, "cmd"))
    assert rule_id_of(compiled, "3333") == whole


def test_a_rule_is_meant_by_its_title_where_no_other_has_it(home: Settings) -> None:
    for file in home.alerts.rules[0].iterdir():
        text = file.read_text("utf-8").replace(f"title: {file.stem}", "title: Fetches a file")
        file.write_text(text, "utf-8")
    compiled = read_rule_files(home).compiled()
    with pytest.raises(Usage, match="rule 'Fetches a file' may be several"):
        rule_id_of(compiled, "Fetches a file")
    for name in ("wget", "cmd"):
        compiled.sources.pop(rule_id_of(compiled, name))
    assert rule_id_of(compiled, "Fetches a file") == rule_id_of(compiled, "curl")


@pytest.mark.parametrize("rule", ["headgate-incident", "headgate-rule-failed"])
def test_alerts_of_what_stands_in_no_file_are_named_as_well(home: Settings, rule: str) -> None:
    assert id_of_alerts(home, rule) == rule


def test_alerts_of_a_model_are_named_by_its_short_name(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    (model,) = (m for m in model_rules(settings).sources.values() if "volume" in m.rule.name)
    assert id_of_alerts(settings, model.rule.name) == model.rule.id
