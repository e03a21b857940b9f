"""The notebook runs from top to bottom and finds what was put into the lake."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics, producer, topic_of
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.api.story import FAILED, A, event, insert, tell

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "hunting.ipynb"
LINE = (
    "<86>1 2026-11-20T12:0{n}:00+00:00 bastion1 sshd 417{n} - - "
    "Failed password for root from 10.0.0.1 port 5201{n} ssh2"
)


@pytest.fixture
def hunted(lake: Lake, broker: Broker) -> Settings:
    """The story's day, with more guesses by device A, and sshd lines on the broker."""
    settings = load(home=lake.settings.home, kafka={"bootstrap": broker.address})
    tell(lake)
    insert(lake, EVENT, [event(f"g{n}", f"12:0{n}", **FAILED) for n in range(1, 5)])
    ensure_topics(settings, ["sshd"])
    client = producer(settings.kafka)
    for n in range(3):
        client.produce(topic_of("sshd", settings.kafka), LINE.format(n=n).encode())
    assert client.flush(20) == 0
    return settings


def _text(notebook: nbformat.NotebookNode) -> str:
    pieces = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            pieces.append(output.get("text") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(pieces)


@pytest.mark.full
def test_the_notebook_goes_from_the_tables_to_a_finding(
    hunted: Settings, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_HOME", str(hunted.home))
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP", hunted.kafka.bootstrap)
    monkeypatch.setenv("HEADGATE_CONFIG", "")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(hunted.home)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()

    mine = lake.spark.read.format("delta").load(str(hunted.home / "notebooks" / "finding"))
    (row,) = mine.collect()
    assert row["holder"]["mac"] == A
    assert row["rule_title"] == "Guessed passwords, then asked for a rare domain"
    assert "evil.example" in row["snippet"]
    assert "evil.example" in _text(notebook)

    owned = lake.spark.read.format("delta").load(str(hunted.home / "notebooks" / "owned"))
    rows = owned.collect()
    assert {(row["host_name"], row["owner"], row["user_name"]) for row in rows} == {
        ("bastion1", "platform", "root")
    }
    assert len(rows) == 3


def test_the_notebook_is_kept_without_output_and_its_kafka_cell_is_short() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert len(code[-1].source.splitlines()) < 10
