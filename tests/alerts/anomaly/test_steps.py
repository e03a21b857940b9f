"""Models of steps: what programs do to programs, counted, judged, trained and told live."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.anomaly.drift import drift_of
from alerts.anomaly.drift_notes import drift_findings, note_drift
from alerts.anomaly.job import device_history, models, whole_hours
from alerts.anomaly.steps import ALONE, SeenStep, StepCounts, hour_stray
from alerts.anomaly.store import ModelStore, StepModel
from alerts.anomaly.train import train
from alerts.cli.models import aged, retrain
from alerts.compiler.model_rule_files import read_models
from alerts.domain.step import STEPS, is_step, program
from alerts.rulebook.model_rule_tests import check_models
from alerts.rulebook.rule_store import model_rules, recompile
from alerts.rulepack.locations import BUNDLED_MODELS, store_folder
from alerts.rulepack.rule_pack import PackStore
from alerts.tables import DEVICE_HOUR, FINDING
from alerts.verify.models import KnownModel, judge_hours, read_hours
from bench.lab_steps import lab_hours
from bench.measure import RESULTS
from bench.models import RANKS, caught_by, lab, learn, plant
from bench.step_fleet import benign, recordings
from infra.delta.duckdb_views import connect
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.model_history import START

NAME = "device_rare_steps"
DAYS, DEVICES = 14, 28
END = START + timedelta(days=DAYS)
OFFICE = ("explorer.exe started winword.exe", "winword.exe started splwow64.exe",
          "explorer.exe started cmd.exe")  # fmt: skip


def usual(devices: int = 10, days: int = 20) -> list[SeenStep]:
    """Devices that print from Word, and each of which has a tool of its own."""
    rows = []
    for number in range(devices):
        name = f"host|pc{number}"
        own = f"explorer.exe started {chr(97 + number)}tool.exe"
        for step in (*OFFICE[:1], "winword.exe started splwow#.exe", OFFICE[2], own):
            rows.append(SeenStep(name, 0, days, step, days))
    return rows


def test_programs_are_counted_by_the_end_of_their_path_without_numbers() -> None:
    assert program(r"C:\Windows\splwow64.exe") == "splwow#.exe"
    assert program("/usr/bin/python3.11") == "python#.#"
    assert program("C:\\Temp\\3f2a9bc01d.exe") == "#.exe"
    assert is_step("a.exe injected into b.exe")
    assert not is_step("A.exe started b.exe"), "a rule's test has to write it as it is counted"
    assert not is_step("a.exe closed b.exe")


def test_what_a_program_never_did_is_rarer_where_it_does_nothing_new() -> None:
    counts = StepCounts(usual())
    shell = counts.rarity("host|pc1", "winword.exe started cmd.exe")
    tool = counts.rarity("host|pc1", "explorer.exe started newtool.exe")
    assert shell.stray > 3 > 1 > tool.stray
    assert (shell.fleet_days, shell.fleet_of) == (0, 200)
    assert counts.word("explorer.exe started btool.exe") == f"explorer.exe started {ALONE}"
    assert counts.usually("winword.exe started cmd.exe") == ["splwow#.exe"]


def test_what_a_device_does_on_other_days_is_not_rare_for_it() -> None:
    odd = SeenStep("host|pc1", 0, 20, "winword.exe started cmd.exe", 2)
    counts = StepCounts([*usual(), odd])
    assert counts.rarity("host|pc1", odd.step).stray == 0
    assert counts.rarity("host|pc2", odd.step).stray > 1.5
    once = StepCounts([*usual(), odd._replace(days=1)])
    assert once.rarity("host|pc1", odd.step).stray > 1.5, "an attack in the history teaches nothing"


@given(st.lists(st.floats(0, 12), max_size=30), st.floats(0, 12))
def test_an_hour_never_strays_less_for_one_more_step(strays: list[float], more: float) -> None:
    assert hour_stray([*strays, more]) >= hour_stray(strays)


def test_the_share_of_steps_that_nobody_made_is_told() -> None:
    steps = ["explorer.exe started cmd.exe", "winword.exe started cmd.exe"]
    assert StepCounts(usual()).unseen(steps) == 0.5
    assert StepCounts(usual()).unseen([]) == 0


def test_the_bundled_rule_passes_its_tests_and_wants_steps_written_as_counted(
    tmp_path: Path,
) -> None:
    found = read_models([BUNDLED_MODELS / f"{NAME}.yml"], {})
    outcomes = check_models(found)
    assert [outcome.must_match for outcome in outcomes] == [True, True, False, False]
    assert [outcome.detail for outcome in outcomes if not outcome.passed] == []
    broken = {
        "type": "model", "title": "Odd", "id": "11111111-2222-3333-4444-555555555555",
        "logsource": {"product": "ocsf", "category": "process_activity"},
        "model": {"features": [STEPS]},
        "headgate": {"tests": {"match": [{"usual": {"Word.exe ran cmd": 1}, "hour": {}}]}},
    }  # fmt: skip
    for change, said in (
        ({}, "steps, as 'a.exe started b.exe'"),
        ({"model": {"features": [STEPS, "events"]}}, "steps alone"),
        ({"model": {"features": [STEPS], "least": {STEPS: 3}}}, "no quantity"),
    ):
        (tmp_path / "rule.yml").write_text(json.dumps(broken | change))
        (refused,) = read_models([tmp_path], {}).refused
        assert said in refused.reason


@pytest.mark.full
def test_recorded_attacks_are_among_the_ten_of_their_day() -> None:
    """A tenth of what `python -m bench --only models` measures."""
    attacks = recordings()
    assert (
        "rundll32.exe opened lsass.exe".replace("32", "#")
        in attacks["psh_lsass_memory_dump_comsvcs"]
    )
    learned = learn(list(benign(range(14, 28), [], 1)))
    names = ("cmd_lsass_memory_dumpert_syscalls", "empire_shell_rubeus_asktgt_ptt")
    quiet = list(benign([28, 29], [], 1))
    hours, planted = plant(quiet, {name: attacks[name] for name in names}, 1)
    assert sorted(planted.values()) == sorted(names)
    caught = {
        name: caught_by(lambda hour, rank=rank: rank(learned, hour), hours, planted)
        for name, rank in RANKS.items()
    }
    assert caught["model"] == set(names)
    assert caught["most events in an hour"] == set()


@pytest.mark.full
def test_on_the_published_benign_day_an_attack_is_the_first_of_its_day() -> None:
    site = lab(1)._replace(days=3, held=1, judged=range(3, 4))
    learned = learn(list(lab_hours(range(3), 1)), site)
    quiet = list(lab_hours(site.judged, 1))
    assert {hour.device for hour in quiet} <= set(site.devices)
    assert "host|dc1@0" in learned.counts.devices
    assert any("searchindexer.exe started searchfilterhost.exe" in hour.steps for hour in quiet)
    name = "empire_shell_rubeus_asktgt_ptt"
    hours, planted = plant(quiet, {name: recordings()[name]}, 1, site)
    ((where, _),) = planted.items()
    first = max(hours, key=lambda hour: RANKS["model"](learned, hour)[0])
    assert (first.device, first.day, first.hour) == where
    assert caught_by(lambda hour: RANKS["model"](learned, hour), hours, planted) == {name}


@pytest.mark.parametrize(
    ("page", "form"),
    [
        ("docs/how-to/train-anomaly-models.md", "{caught:g} ({precision:g} %)"),
        ("notebooks/09_anomaly_model.ipynb", "{precision:g} % ({caught:g} of 15"),
    ],
)
def test_what_is_told_of_the_model_is_what_was_measured(page: str, form: str) -> None:
    measures = json.loads((RESULTS / "models.json").read_text("utf-8"))["measures"]
    measured = {measure["name"]: measure["value"] for measure in measures}
    text = " ".join((RESULTS.parents[1] / page).read_text("utf-8").replace("**", "").split())
    for where in ("", "lab: "):
        for rank in ("model", "most steps that no device ever did"):
            precision = measured[f"{where}precision at 10 alerts a day, {rank}"]
            caught = measured[f"{where}recordings caught, {rank}"]
            assert form.format(precision=precision, caught=caught) in text
        assert measured[f"{where}recordings caught, most events in an hour"] == 0


# -- history and stream --------------------------------------------------------------------------


def rows_of(steps: Iterable[tuple[str, Any, str]], mode: str) -> list[dict[str, Any]]:
    """Events of host, time and step, as Windows' parser makes them."""
    rows = []
    for number, (host, when, step) in enumerate(steps):
        by, verb, name = next(
            (step.partition(f" {verb} ")[0], activity, step.partition(f" {verb} ")[2])
            for activity, verb in ((1, "started"), (3, "opened"))
            if f" {verb} " in step
        )
        rows.append(
            {
                "event_uid": f"{mode}:{number}",
                "source": "windows_xml",
                "mode": mode,
                "time": when,
                "received_at": when + timedelta(seconds=1),
                "class_uid": 1007,
                "activity_id": verb,
                "scope": "default",
                "host_name": host,
                "actor": {"process": {"path": f"C:\\Windows\\{by.title()}"}},
                "process": {"path": f"C:\\Windows\\{name}", "name": name},
            }
        )
    return rows


def office() -> list[tuple[str, Any, str]]:
    return [
        (f"pc{number}", START + timedelta(days=day, hours=hour, minutes=number), step)
        for day in range(DAYS)
        for number in range(DEVICES)
        for hour, step in zip((9, 11, 14), OFFICE, strict=True)
    ]


ATTACK = END + timedelta(hours=10)


def attacked() -> list[tuple[str, Any, str]]:
    """A usual morning of all, and on one device what no other does."""
    usual = [(f"pc{n}", END + timedelta(hours=9, minutes=n), OFFICE[0]) for n in range(DEVICES)]
    steps = ("winword.exe started cmd.exe", "cmd.exe started whoami.exe",
             "cmd.exe opened lsass.exe")  # fmt: skip
    odd = [("pc2", ATTACK + timedelta(minutes=n), step) for n, step in enumerate(steps)]
    return [*usual, *odd]


@pytest.mark.full
def test_rare_steps_are_told_once_by_stream_and_history_and_verified(lake: Lake) -> None:
    lake.add(EVENT, rows_of(office(), "import"), "test")
    store = ModelStore(store_folder(lake.settings))
    source = model_rules(lake.settings).named(NAME)
    assert source is not None
    done = train(lake, store, source.rule, START, END)
    assert (done.header.devices, done.alerting_hours) == (DEVICES, 0)
    store.use(source.rule.id, done.hash)
    recompile(lake.settings)
    in_force = model_rules(lake.settings).named(NAME)
    assert in_force is not None
    model = store.get(done.hash)
    assert isinstance(model, StepModel)
    events = rows_of(attacked(), "live")
    for rows in (events[:-1], events[-1:]):
        lake.add(EVENT, rows, "test")
        models(lake, once=True).wait()
    (live,) = (row.asDict(recursive=True) for row in lake.read(FINDING).collect())
    found, looked_at = device_history(
        lake, in_force.rule, model, *whole_hours(END, END + timedelta(days=1))
    )
    assert [row["finding_id"] for row in found] == [live["finding_id"]]
    assert looked_at == DEVICES + 1
    assert live["host_name"] == "pc2"
    assert live["snippet"].startswith("cmd.exe opened lsass.exe, seen on 0 of 392 days of devices")
    assert "in the same hour cmd.exe started whoami.exe; winword.exe started" in live["snippet"]
    assert live["fields"]["step"] == "cmd.exe opened lsass.exe"
    assert f"live:{DEVICES + 2}" in {fact["event_uid"] for fact in live["evidence"]}
    assert sorted(
        row.told for row in lake.read(DEVICE_HOUR).where("entity = 'host|pc2'").collect()
    )[-1]

    folder = store_folder(lake.settings)
    duck = connect(lake.settings.lake_root, needs=("gold.device_hour", "gold.finding"))
    try:
        hours, findings = read_hours(duck, END, END + timedelta(days=1))
        pack = PackStore(folder).get(PackStore(folder).current())
        known = KnownModel([pack], ModelStore(folder).get, through=0)
        assert judge_hours(hours, findings, known) == (DEVICES + 1, [])
        drift = drift_of(duck, model, END, END + timedelta(days=1))
        assert (drift.hours, drift.rare, drift.state) == (DEVICES + 1, 1, "too little")
        assert drift.unseen == 1 / (DEVICES + 1)
    finally:
        duck.close()
    note_drift(lake.settings, END + timedelta(days=1))
    ((told, remedy),) = ((each.found, each.remedy) for each in drift_findings(lake.settings))
    assert (told.split(", as of")[0], remedy) == (f"{NAME}: too little", None)

    assert aged(lake.settings, done.header.trained_at + timedelta(days=6)) == []
    old = aged(lake.settings, done.header.trained_at + timedelta(days=7))
    assert [source.rule.name for source in old] == [NAME]
    # Of two days nothing can be learned: what is in force stays.
    assert retrain(lake, old, END - timedelta(days=2), END) == old
    assert store.current() == {source.rule.id: done.hash}
    assert retrain(lake, old, START + timedelta(days=1), END) == []
    assert store.current()[source.rule.id] != done.hash
