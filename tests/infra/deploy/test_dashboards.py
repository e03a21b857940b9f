"""The dashboard and the alert rules ask for metrics that there are, by labels that these have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
import yaml
from prometheus_client import generate_latest

from api.observability.metrics import Meters
from api.services.reader import Reader
from infra.config.settings import Settings, load
from infra.errors import Fatal
from ingest.completeness.ledger_state import LedgerCheckState, ledger_check_folder

FOLDER = Path(__file__).resolve().parents[3] / "infra" / "deploy" / "dashboards"
PROMETHEUS = {"job", "instance"}
"""Labels that it gives each series itself; one of ours would be renamed."""


@pytest.fixture(scope="module")
def meters(tmp_path_factory: pytest.TempPathFactory) -> Meters:
    return Meters(load(home=tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="module")
def known(meters: Meters) -> set[str]:
    """Names of all series, as /metrics declares them."""
    said = generate_latest(meters.registry).decode()
    declared = set(re.findall(r"^# TYPE (\w+)", said, re.MULTILINE))
    return declared | {f"{name}_bucket" for name in declared}


@pytest.fixture(scope="module")
def labels(meters: Meters) -> dict[str, set[str]]:
    """The labels of all series, by name."""
    found = {}
    for one, names in meters.registry._collector_to_names.items():
        told = one if hasattr(one, "_labelnames") else next(iter(one.describe()))
        own = set(told._labelnames)
        found |= {name: own | ({"le"} if name.endswith("_bucket") else set()) for name in names}
    return found


GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def asked(expression: str) -> set[str]:
    """The series of an expression: what is said of their labels is no series."""
    return set(re.findall(r"headgate_\w+", GROUPED.sub("", re.sub(r"\{[^}]*\}", "", expression))))


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
    assert len(rules) == 9
    for rule in rules:
        assert asked(rule["expr"])
        assert asked(rule["expr"]) <= known


NEVER = re.compile(r"absent\((headgate_\w+)\) and on\(\) (headgate_\w+)")
"""One element while nothing has the first name and something has the second; none else. Without
`on()` it would be none ever: the labels of what is absent are no other series' labels."""


def test_a_ledger_that_was_never_checked_is_told_of(tmp_path: Path) -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    (rule,) = (one for one in rules if one["alert"] == "HeadgateNeverChecked")
    found = NEVER.fullmatch(rule["expr"])
    assert found
    settings = load(home=tmp_path)
    assert not shown(settings, found[1])
    assert shown(settings, found[2])
    LedgerCheckState(at=datetime.now(UTC).isoformat()).save(ledger_check_folder(settings))
    assert shown(settings, found[1])


class Away:
    """A lake that cannot be read."""

    def rows(self, *_: object, **__: object) -> None:
        raise Fatal("gone")


def shown(settings: Settings, name: str) -> bool:
    """Whether /metrics has a series of this name."""
    said = Meters(settings).text(cast(Reader, Away())).decode()
    return re.search(rf"^{name}[ {{]", said, re.MULTILINE) is not None


def given(expression: str, labels: Mapping[str, set[str]]) -> set[str]:
    """The labels of an expression's series; an aggregation leaves those it is `by`."""
    if by := re.findall(r"\bby\s*\(([^)]*)\)", expression):
        return {one.strip() for one in by[0].split(",")}
    if re.match(r"(max|min|sum|avg|count|absent)\b", expression):
        return set()
    return set.intersection(*(labels[name] for name in asked(expression)))


def wrong(expression: str, shown: str, labels: Mapping[str, set[str]]) -> Iterator[str]:
    """Labels of an expression, and of the text shown with it, that its series do not have."""
    for name, selector in re.findall(r"(headgate_\w+)\{([^}]*)\}", expression):
        yield from set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) - labels[name]
    grouped = ",".join(GROUPED.findall(expression)).split(",")
    for label in filter(None, map(str.strip, grouped)):
        yield from {label} - set.union(*(labels[name] for name in asked(expression)))
    told = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", shown))
    yield from told - given(expression, labels)


def test_no_label_is_one_that_prometheus_has_itself(labels: dict[str, set[str]]) -> None:
    assert {name for name, own in labels.items() if own & PROMETHEUS} == set()


def test_every_panel_goes_by_labels_its_series_have(labels: dict[str, set[str]]) -> None:
    board = json.loads((FOLDER / "headgate.json").read_text("utf-8"))
    targets = [one for panel in board["panels"] for one in panel["targets"]]
    assert sum("{{headgate_job}}" in one["legendFormat"] for one in targets) > 10
    for one in targets:
        assert list(wrong(one["expr"], one["legendFormat"], labels)) == [], one["expr"]


def test_every_rule_goes_by_labels_its_series_have(labels: dict[str, set[str]]) -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    for rule in rules:
        for text in rule["annotations"].values():
            assert list(wrong(rule["expr"], text, labels)) == [], rule["alert"]


@pytest.mark.parametrize(
    ("expression", "shown", "found"),
    [
        ('headgate_job_phase_seconds{job="ingest"}', "{{phase}}", ["job"]),
        ("headgate_job_up", "{{job}}", ["job"]),
        ("sum by (job) (headgate_job_batches)", "", ["job"]),
        ("sum by (headgate_job) (headgate_job_batches)", "{{headgate_job}}", []),
        ("max(headgate_job_failures)", "{{headgate_job}}", ["headgate_job"]),
        ("headgate_job_up == 0", "job {{ $labels.job }} is late", ["job"]),
    ],
)
def test_a_label_that_is_not_there_is_found(expression, shown, found, labels) -> None:
    assert list(wrong(expression, shown, labels)) == found
