"""The whole line with its tables in a bucket: tended, asked, killed, refused to a second home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.kafka import Broker, ensure_topics, free_port
from infra.settings import Settings, load
from tests.bucket.store import SECRET, Store
from tests.recovery import judge
from tests.recovery.flow import SOURCES, Flow
from tests.recovery.plant import batches, complaints, driver, settle, until
from tests.recovery.test_kill import ALERTING, ALL, EVERY, Phase, killed

SEED = 20261122


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "kafka", free_port()).start()
    yield running
    running.stop()


def headgate(plant: Settings, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.cli", "--home", str(plant.home), *words],
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


@pytest.mark.timeout(1500)
def test_a_lake_in_a_bucket_loses_and_doubles_nothing(
    store: Store, broker: Broker, tmp_path: Path
) -> None:
    plant = load(
        home=tmp_path / "home", lake="s3://plant/lake", kafka={"bootstrap": broker.address}
    )
    ensure_topics(plant, SOURCES)
    flow = Flow(plant, SEED, per_second=30).start()
    with driver(plant, ALERTING) as running:
        until(running, lambda: batches(plant) > 4)
        flow.stop()
        settle(plant, running, len(flow.accepted))
        early, counted = datetime.now(UTC), len(flow.accepted)
        flow.send(("sshd", b"a last line"))
        until(running, lambda: judge.records(plant.lake_root) > counted)

    (tended,) = answered(plant, "compact", "silver.event")
    assert tended["made"], tended
    accepted = {**flow.accepted}
    assert len(accepted) == counted + 1 > 200
    assert complaints(plant, accepted) == []
    assert len(judge.topic(plant.kafka.bootstrap, "alerts")) > 0
    assert all(row["unaccounted"] == 0 for row in answered(plant, "ledger"))

    asked = ("sql", "SELECT count(*) AS n FROM bronze.record")
    assert answered(plant, *asked) == [{"n": counted + 1}]
    then = early.isoformat(timespec="seconds")
    assert answered(plant, *asked, "--as-of", then) == [{"n": counted}]

    other = plant.model_copy(update={"home": tmp_path / "other"})
    refused = headgate(other, "run", "ingest", "--once")
    assert refused.returncode == 1
    assert "its writers keep their locks in" in refused.stderr, refused.stderr
    assert "Traceback" not in refused.stderr

    kept = [file for file in plant.home.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in file.read_bytes() for file in kept)
    assert not [name for name in store.names("lake/") if "_rules" in name or "_locks" in name]


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_lake_in_a_bucket_survives_kill_9(store: Store, broker: Broker, tmp_path: Path) -> None:
    """Phases that a folder of this machine shows, and moments at which the store is written to."""
    phases = [phase for phase in ALL if not phase.folder.startswith("lake/")]
    phases += [Phase(f"at a random moment, {number}") for number in range(8)]
    killed(broker, tmp_path, phases, SEED, broker_too=0.2, jobs=EVERY, lake="s3://plant/shaken")
