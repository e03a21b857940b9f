"""Each notebook runs from top to bottom on the demo's lake, with `import headgate` alone."""

from __future__ import annotations

import ast
import json
import sys
import tarfile
from datetime import timedelta
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession

from alerts.rulebook.rule_store import model_rules
from alerts.tables import ALERT, ALERT_ACTION
from bench.standalone import SMALL, standalone
from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics, producer
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.anomaly.test_model import rows_of
from tests.alerts.model_history import START, Flow, address, office
from tests.full import rest_full

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OTHERS = {"headgate", "datetime"}
DEMO = ROOT / "samples" / "demo" / "headgate.toml"
APART = {"06_alerts_from_kafka", "07_triage_figures", "09_anomaly_model", "11_on_a_cluster"}
"""Lessons that need more than the demo's tables."""


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A home with the demo's tables, for one notebook alone."""
    with tarfile.open(ROOT / "tests" / "upgrade" / "home.tar.xz") as packed:
        packed.extractall(tmp_path / "home", filter="data")
    (tmp_path / "rules").mkdir()
    return tmp_path


def run(
    name: str, folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, **environment: str
) -> str:
    """Run a notebook in `folder` on the lake of `home`; what its cells printed and showed."""
    monkeypatch.setenv("HEADGATE_HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    assert not (folder / ".headgate").exists()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    return "\n".join(out.get("text", "") + out.get("data", {}).get("text/plain", "")
                     for out in outputs)  # fmt: skip


@pytest.mark.parametrize(
    "name", rest_full(1, [path.stem for path in NOTEBOOKS if path.stem not in APART])
)
def test_a_notebook_runs_from_top_to_bottom(
    name: str, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = json.dumps([str(demo / "rules")])
    run(name, demo, demo / "home", monkeypatch, HEADGATE_CONFIG=str(DEMO),
        HEADGATE_ALERTS__RULES=rules)  # fmt: skip


def of_demo(spark: SparkSession, demo: Path) -> Lake:
    return Lake(spark, load(DEMO, home=demo / "home"))


@pytest.mark.full
def test_alerts_are_read_from_kafka(
    demo: Path, spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = of_demo(spark, demo).read(ALERT).where("suppressed_by IS NULL").collect()
    kafka = {"bootstrap": broker.address, "alerts_topic": "notebook.alerts"}
    ensure_topics(load(kafka=kafka), jobs=["alert"])
    client = producer(load(kafka=kafka).kafka)
    for row in sorted(published, key=lambda row: row.revision):
        client.produce("notebook.alerts", row.body.encode(), key=row.alert_id.encode())
    assert client.flush(20) == 0
    environment = {
        "HEADGATE_CONFIG": str(DEMO),
        "HEADGATE_KAFKA__BOOTSTRAP": broker.address,
        "HEADGATE_KAFKA__ALERTS_TOPIC": "notebook.alerts",
    }
    shown = run("06_alerts_from_kafka", demo, demo / "home", monkeypatch, **environment)
    assert f"{len(published)} rows of written_at, alert_id, revision" in shown


@pytest.mark.full
def test_triage_figures_count_what_people_did(
    demo: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = of_demo(spark, demo).ensure()
    revisions, acts = [], []
    for number, row in enumerate(lake.read(ALERT).where("revision = 1").limit(9).collect()):
        verdict = "true_positive" if number % 3 == 0 else "false_positive"
        body = json.loads(row.body) | {"revision": 9, "state": "closed", "verdict": verdict}
        closed = {"revision": 9, "activity": "close", "reason": "closed", "body": json.dumps(body)}
        revisions.append(row.asDict(recursive=True) | closed)
        act = {"alert_id": row.alert_id, "value": verdict, "who": "ana"}
        for minutes, action in ((200, "verdict"), (230, "close")):
            when = row.event_time + timedelta(minutes=minutes)
            acts.append(act | {"action_id": f"{number}-{action}", "action": action, "at": when})
    lake.add(ALERT, revisions, "test")
    lake.add(ALERT_ACTION, acts, "test")
    shown = run("07_triage_figures", demo, demo / "home", monkeypatch, HEADGATE_CONFIG=str(DEMO))
    assert "verdict  false_positive     6       1" in shown
    assert "true_positive" in shown


SEEN_AT = START + timedelta(days=24, hours=3)


def a_month() -> list[Flow]:
    """Four weeks of an office; in the last a desk sends at night what a server sends by day."""
    night = [(address(0), SEEN_AT + timedelta(minutes=5 * n), 9_000_000, 900) for n in range(12)]
    return sorted([*office(8, 4), *night], key=lambda flow: flow[1])


@pytest.mark.full
def test_a_model_is_trained_judged_on_other_days_explained_and_put_live(
    lake: Lake, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.add(EVENT, rows_of(a_month(), "import"), "test")
    shown = run("09_anomaly_model", tmp_path, settings.home, monkeypatch)
    assert "- sent 108 MB in the hour from 03:00 UTC on 2026-10-22; usual at that time" in shown
    assert "1 above the threshold" in shown
    rule = model_rules(settings).named("device_unusual_volume")
    assert rule is not None
    assert rule.rule.model in shown


@pytest.mark.full
@pytest.mark.cluster
def test_a_lesson_runs_on_the_executors_of_a_cluster(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": SMALL,
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
    }
    with standalone(tmp_path, workers=2, cores=1) as cluster:
        of_cluster = {
            "HEADGATE_CONFIG": str(DEMO),
            "HEADGATE_SPARK__MASTER": cluster.master,
            "HEADGATE_SPARK__CONF": json.dumps(conf),
            "PYSPARK_PYTHON": sys.executable,
        }
        shown = run("11_on_a_cluster", demo, demo / "home", monkeypatch, **of_cluster)
        assert f"('{cluster.master}', 2)" in shown
        assert [len(cluster.executors(number)) for number in (0, 1)] == [1, 1]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_reads_like_a_lesson_and_imports_the_public_face_alone(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.cells[0].cell_type == "markdown"
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    imported = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for cell in code
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= OTHERS
    assert "headgate" in imported
    prose = len(notebook.cells) - len(code)
    assert prose * 2 >= len(code)


def test_the_lessons_are_whole_and_the_page_names_them() -> None:
    page = (ROOT / "docs" / "how-to" / "work-in-a-notebook.md").read_text("utf-8")
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{n:02d}" for n in range(1, 12)]
    assert [path.stem for path in NOTEBOOKS if f"`{path.stem}`" not in page] == []
