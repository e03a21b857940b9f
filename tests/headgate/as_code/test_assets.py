"""Assets of inventories as files: what is listed now, and one load for each inventory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from enrich.assets.loader import load_inventory
from enrich.assets.registers import ASSETS
from headgate.as_code.export import export_folder
from headgate.as_code.kinds.assets import put_assets
from headgate.as_code.plan import ConfigPlan, planned_folder
from headgate.as_code.rows import plan_rows
from infra.config.settings import Settings, load
from infra.delta.schema import Table
from tests.headgate.as_code.delta_by_hand import append_rows

LISTED = (
    "asset_id,mac,hostname,criticality,Rack\n"
    "crown,02-42-AC-77-0B-19,DB1.example.,high,R7\n"
    "desk,02:42:ac:77:0b:20,pc1,low,\n"
)


class Inventories:
    """A home with an inventory, and how a load of it writes without Spark."""

    def __init__(self, path: Path) -> None:
        self.settings: Settings = load(home=path / "home", alerts={"bundled": False})
        self.loads = 0
        self.folder = path / "repository"
        (path / "assets.csv").write_text(LISTED)
        load_inventory(self.settings, ASSETS, str(path / "assets.csv"), self.write)
        export_folder(self.settings, self.folder)
        self.file = self.folder / "assets" / "default.ndjson"

    def write(self, table: Table, rows: Sequence[dict[str, Any]], note: str) -> None:
        self.loads += 1
        append_rows(self.settings.lake_side, table, rows)

    def plan(self, prune: bool = False) -> ConfigPlan:
        with planned_folder(self.settings, self.folder, prune) as (plan, _, _):
            return plan

    def put(self, plan: ConfigPlan) -> None:
        staged = self.folder.parent / "staged"
        staged.mkdir(exist_ok=True)
        put_assets(self.settings, plan.changes, str(staged), self.write)


@pytest.fixture
def inventories(tmp_path: Path) -> Inventories:
    return Inventories(tmp_path)


def test_an_inventory_is_a_file_with_a_line_for_each_asset(inventories: Inventories) -> None:
    lines = [json.loads(line) for line in inventories.file.read_text().splitlines()]
    assert lines == [
        {"Rack": "R7", "asset_id": "crown", "criticality": "high",
         "hostnames": ["db1.example"], "macs": ["02:42:ac:77:0b:19"]},
        {"asset_id": "desk", "criticality": "low", "hostnames": ["pc1"],
         "macs": ["02:42:ac:77:0b:20"]},
    ]  # fmt: skip
    assert inventories.plan(prune=True).exit_code == 0


@pytest.mark.full
def test_edited_assets_are_told_and_loaded_at_once(inventories: Inventories) -> None:
    new = '{"asset_id": "cam", "ip": "10.1.0.9"}\n'
    text = inventories.file.read_text()
    inventories.file.write_text(text.replace('"low"', '"critical"') + new)
    plan = inventories.plan()
    rows = [(row["action"], row["name"], row["field"], row["after"]) for row in plan_rows(plan)]
    assert rows == [
        ("add", "default/cam", "ips", ["10.1.0.9"]),
        ("change", "default/desk", "criticality", "critical"),
    ]
    loads = inventories.loads
    inventories.put(plan)
    inventories.put(plan)
    assert inventories.loads == loads + 1, "the second time nothing differs"
    assert inventories.plan(prune=True).exit_code == 0


def test_an_asset_goes_only_when_it_is_pruned(inventories: Inventories) -> None:
    inventories.file.write_text("")
    left = inventories.plan()
    assert (left.exit_code, len(left.left)) == (0, 2)
    inventories.put(inventories.plan(prune=True))
    assert inventories.plan(prune=True).exit_code == 0
    export_folder(inventories.settings, inventories.folder)
    assert not inventories.file.exists()


def test_a_line_that_is_no_asset_is_a_problem(inventories: Inventories) -> None:
    with inventories.file.open("a") as file:
        file.write('{"asset_id": "x", "criticality": "huge", "ip": "10.1.0.9"}\n')
    (problem,) = inventories.plan().problems
    assert "default.ndjson:3: criticality: 'huge' is none of" in problem.sentence


def test_an_inventory_that_a_file_of_the_settings_fills_is_left_out(
    inventories: Inventories, tmp_path: Path
) -> None:
    assets = {"file": str(tmp_path / "assets.csv")}
    inventories.settings = load(
        home=inventories.settings.home, alerts={"bundled": False}, assets=assets
    )
    (problem,) = inventories.plan().problems
    assert "assets.file of the settings" in problem.sentence
    export_folder(inventories.settings, inventories.folder)
    assert inventories.plan(prune=True).exit_code == 0
