"""The dashboard and the alert rules ask for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from api.metrics import Meters
from infra.settings import load

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "dashboards"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of all series, as /metrics declares them."""
    meters = Meters(load(home=tmp_path_factory.mktemp("home")))
    said = generate_latest(meters.registry).decode()
    declared = set(re.findall(r"^# TYPE (\w+)", said, re.MULTILINE))
    return declared | {f"{name}_bucket" for name in declared}


def asked(expression: str) -> set[str]:
    return set(re.findall(r"headgate_\w+", expression))


def test_every_panel_asks_for_a_metric_there_is(known: set[str]) -> None:
    board = json.loads((FOLDER / "headgate.json").read_text("utf-8"))
    wanted = {
        name for panel in board["panels"] for one in panel["targets"] for name in asked(one["expr"])
    }
    assert len(wanted) > 15
    assert wanted - known == set()
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)


def test_every_rule_asks_for_a_metric_there_is(known: set[str]) -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    assert len(rules) == 3
    for rule in rules:
        assert asked(rule["expr"])
        assert asked(rule["expr"]) <= known
