"""The whole line with its tables in a bucket: tended, asked, killed, refused to a second home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics
from tests.bucket.store import SECRET, Store
from tests.recovery import judge
from tests.recovery.flow import SOURCES, Flow
from tests.recovery.plant import batches, complaints, driver, settle, until
from tests.recovery.test_kill import ALERTING, ALL, EVERY, Phase, killed

SEED = 20261122


def headgate(plant: Settings, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headgate.cli", "--home", str(plant.home), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=os.environ
        | {"HEADGATE_LAKE": str(plant.lake), "HEADGATE_KAFKA__BOOTSTRAP": plant.kafka.bootstrap},
    )


def answered(plant: Settings, *words: str) -> list[dict[str, object]]:
    done = headgate(plant, *words, "--output", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


@pytest.fixture
def plant(store: Store, own_broker: Broker, tmp_path: Path) -> Settings:
    """Settings for a lake of this test's own in the bucket, with topics for a flow of logs."""
    lake = f"s3://plant/{tmp_path.name}"
    settings = load(home=tmp_path / "home", lake=lake, kafka={"bootstrap": own_broker.address})
    ensure_topics(settings, SOURCES)
    return settings


@pytest.mark.full
@pytest.mark.timeout(900)
def test_tables_in_a_bucket_are_written_asked_and_guarded(store: Store, plant: Settings) -> None:
    flow = Flow(plant, SEED, per_second=200).start()
    while len(flow.accepted) < 300:
        time.sleep(0.1)
    flow.stop()
    counted = len(flow.accepted)
    assert headgate(plant, "run", "ingest", "--once").returncode == 0
    early = datetime.now(UTC).isoformat()
    flow.send(("sshd", b"a last line"))
    assert headgate(plant, "run", "ingest", "--once").returncode == 0

    lake = plant.lake_root
    assert judge.lost_or_doubled_records(lake, flow.accepted) == []
    assert judge.nameless_records(lake) == []
    assert judge.doubled_findings(lake) == []
    asked = ("sql", "SELECT count(*) AS n FROM bronze.record")
    assert answered(plant, *asked) == [{"n": counted + 1}]
    assert answered(plant, *asked, "--as-of", early) == [{"n": counted}]

    other = plant.model_copy(update={"home": plant.home.with_name("other")})
    mine = f"{plant.home.parent.name}/"
    before = store.names(mine)
    for words in (("run", "ingest", "--once"), ("compact", "bronze.record")):
        refused = headgate(other, *words)
        assert refused.returncode == 1
        assert "its writers keep their locks in" in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr
    assert store.names(mine) == before != []

    kept = [file for file in plant.home.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in file.read_bytes() for file in kept)
    assert not [name for name in store.names(mine) if "_rules" in name or "_locks" in name]


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_the_whole_line_runs_with_its_tables_in_a_bucket(plant: Settings) -> None:
    flow = Flow(plant, SEED, per_second=30).start()
    with driver(plant, ALERTING) as running:
        until(running, lambda: batches(plant) > 4)
        flow.stop()
        settle(plant, running, len(flow.accepted))
    (tended,) = answered(plant, "compact", "silver.event")
    assert tended["made"], tended
    assert complaints(plant, flow.accepted) == []
    assert len(judge.topic(plant.kafka.bootstrap, "alerts")) > 0
    assert all(row["unaccounted"] == 0 for row in answered(plant, "ledger"))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_lake_in_a_bucket_survives_kill_9(
    store: Store, own_broker: Broker, tmp_path: Path
) -> None:
    """Phases that a folder of this machine shows, and moments at which the store is written to."""
    phases = [phase for phase in ALL if not phase.folder.startswith("lake/")]
    phases += [Phase(f"at a random moment, {number}") for number in range(8)]
    killed(own_broker, tmp_path, phases, SEED, broker_too=0.2, jobs=EVERY, lake="s3://plant/shaken")
