"""A home of the former release is opened by this one and gone on with, by every job.

former release   3,911 lines ──► tables, checkpoints, topics     (home.tar.xz)
this release                     ──► the same, and new lines ──► judged by DuckDB alone
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headgate
from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics, free_port
from tests.recovery import judge
from tests.recovery.flow import SOURCES, Flow
from tests.recovery.plant import PACE, batches, driver, settle, until

HERE = Path(__file__).parent
SENT = 3_911
JOBS = ("ingest", "sessions", "alert", "repair", "rollup", "logins")
KEPT = (
    "bronze/record", "silver/event", "silver/dhcp_segment", "gold/finding", "gold/attribution",
    "gold/alert", "ops/ledger",
)  # fmt: skip
"""Tables to which rows are only added: each former row is there afterwards, as it was."""


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home as it was left; to look at."""
    home = tmp_path_factory.mktemp("former")
    with tarfile.open(HERE / "home.tar.xz") as packed:
        packed.extractall(home, filter="data")
    return home


@contextmanager
def continued(former: Path, folder: Path) -> Iterator[Settings]:
    """A copy of the home with its broker running, on ports that are free here."""
    home = folder / "home"
    shutil.copytree(former, home)
    port, controller = free_port(), free_port()
    properties = home / "kafka" / "server.properties"
    text = properties.read_text().replace("127.0.0.1:39092", f"127.0.0.1:{port}")
    old = next(line for line in text.splitlines() if line.startswith("controller.quorum.voters"))
    properties.write_text(text.replace(old.rpartition(":")[2], str(controller)))
    broker = Broker(home / "kafka", port).start()
    try:
        yield load(HERE / "former.toml", home=home, kafka={"bootstrap": broker.address})
    finally:
        broker.stop()


def rows_lost(former: Path, lake: Path, table: str) -> int:
    """Former rows of a table that are not in it any more, or are there with other values."""
    connection = judge.open_lake()
    described = connection.execute(f"DESCRIBE SELECT * FROM delta_scan('{former}/lake/{table}')")
    columns = ", ".join(f'"{row[0]}"' for row in described.fetchall())
    before, now = (f"delta_scan('{root}/{table}')" for root in (former / "lake", lake))
    question = f"SELECT {columns} FROM {before} EXCEPT ALL SELECT {columns} FROM {now}"
    (lost,) = connection.execute(f"SELECT count(*) FROM ({question})").fetchone() or (-1,)
    return int(lost)


def query_id(home: Path, job: str) -> str:
    """The id that Spark gave a job's query when its checkpoint was made."""
    metadata = json.loads((home / "checkpoints" / job / "spark" / "metadata").read_text())
    return str(metadata["id"])


def test_a_former_home_is_read_at_once_and_stays_as_it_is(former: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(former, home)
    files = {path: path.stat().st_mtime_ns for path in (home / "lake").rglob("*")}
    with headgate.open(home, HERE / "former.toml") as hg:
        assert hg.sql("SELECT count(*) AS n FROM bronze.record").value() == SENT
        assert len(hg.alerts()) == 28
        assert hg.lease("10.20.30.117", "2026-11-24T17:11:30Z").status in ("leased", "none")
    assert {path: path.stat().st_mtime_ns for path in (home / "lake").rglob("*")} == files


@pytest.mark.full
def test_former_words_work_on_a_former_home_and_say_their_new_ones(
    former: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(former, home)
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli", "--home", str(home), "rules", "blind"],
        capture_output=True,
        text=True,
        env=os.environ | {"HEADGATE_CONFIG": str(HERE / "former.toml")},
    )
    assert done.returncode in (0, 1), done.stderr
    assert "'headgate rules blind' is called 'headgate rules coverage' now" in done.stderr
    assert "setting jobs.poison_attempts is called jobs.max_batch_failures now" in done.stderr
    assert "rules blind" in done.stderr.splitlines()[-1]


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_every_job_goes_on_where_the_former_release_left_it(former: Path, tmp_path: Path) -> None:
    with continued(former, tmp_path) as settings:
        home, lake, bootstrap = settings.home, settings.lake_root, settings.kafka.bootstrap
        assert isinstance(lake, Path)
        names = sorted(path.name for path in (home / "kafka" / "log").glob("logs.*-*"))
        topics = {name.rpartition("-")[0] for name in names} - {settings.kafka.tick_topic}
        sent = {
            judge.place_of(message): message.value() or b""
            for name in sorted(topics)
            for message in judge.messages(bootstrap, name)
        }
        assert len(sent) == SENT
        known = {job: (query_id(home, job), batches(settings, job)) for job in JOBS}

        ensure_topics(settings, SOURCES)
        flow = Flow(settings, 20261124, per_second=40).start()
        environment = {
            "HEADGATE_CONFIG": str(HERE / "former.toml"),
            "HEADGATE_UPKEEP__MINUTES": "0",
        }
        with driver(settings, PACE | environment) as running:
            until(running, lambda: all(batches(settings, job) > known[job][1] for job in JOBS), 400)
            flow.stop()
            settle(settings, running, SENT + len(flow.accepted))
            running.stop()

        assert {job: query_id(home, job) for job in JOBS} == {job: known[job][0] for job in JOBS}
        assert {table: rows_lost(former, lake, table) for table in KEPT} == dict.fromkeys(KEPT, 0)
        assert judge.lost_or_doubled_records(lake, sent, flow.accepted) == []
        assert judge.nameless_records(lake) == []
        assert judge.doubled_findings(lake) == []
        assert judge.unattributed_findings(lake) == []
        alerts = judge.topic(bootstrap, settings.kafka.alerts_topic)
        assert judge.wrong_on_topic(lake, alerts) == []
        assert judge.wrong_states(alerts, judge.topic(bootstrap, settings.kafka.state_topic)) == []
        assert len({body["alert_id"] for body in alerts}) > 28
