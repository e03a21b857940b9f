"""A machine and its broker are lost: the backup comes back onto an empty machine beside a new one.

lines     1 ── 2 ── 3 ──┐4  5           6 ── 7 ── 8
bronze    1    2    3   │backup  gap    6    7    8       4 and 5: in the gap, as it says
alerts    A1   B1   A2  │               B2   C1           none of the old ones again
broker    the first one │ lost          a new one, empty
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from infra.config.settings import Settings, load
from infra.errors import Fatal
from infra.kafka.client import Broker, ensure_topics, free_port
from infra.maintenance.backup import backup, left_at
from infra.maintenance.restore import restore
from ingest.completeness.gaps import accept, find_gaps, gap_statement, require_no_gap
from tests.recovery import judge
from tests.recovery.flow import SOURCES, Flow
from tests.recovery.plant import batches, driver, settle, until

SEED = 20261124
ALERTING = {"HEADGATE_JOBS__ROLLUP_TRIGGER_SECONDS": "0"}


def heard(settings: Settings) -> int:
    """How many revisions gold.alert has: what is committed goes out with its batch."""
    log = settings.lake_root / "gold" / "alert" / "_delta_log"
    return len(list(log.glob("*.json"))) if log.is_dir() else 0


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_lost_machine_and_a_lost_broker_come_back_with_nothing_lost_or_doubled(
    own_broker: Broker, tmp_path: Path
) -> None:
    plant = load(home=tmp_path / "home", kafka={"bootstrap": own_broker.address})
    ensure_topics(plant, SOURCES)
    flow = Flow(plant, SEED, per_second=60).start()
    with driver(plant, ALERTING) as running:
        until(running, lambda: batches(plant) > 4 and heard(plant) > 3)
        running.stop()
    flow.stop()
    made = backup(plant, tmp_path / "backups")
    offsets = json.loads((made / "manifest.json").read_text())["kafka"]["offsets"]
    read = {p: raw for p, raw in flow.accepted.items() if p[2] < offsets.get(f"{p[0]}:{p[1]}", 0)}
    unread = len(flow.accepted) - len(read)
    assert unread > 0
    assert left_at(made) == f"{unread:,} messages are not read yet; they are only in the broker"
    alerts = judge.topic(plant.kafka.bootstrap, plant.kafka.alerts_topic)
    assert len(alerts) > 0
    own_broker.kill()
    for lost in (plant.home, own_broker.folder):
        shutil.rmtree(lost)

    anew = Broker(tmp_path / "new-kafka", free_port()).start()
    try:
        after = load(home=plant.home, kafka={"bootstrap": anew.address})
        restore(after, made)
        ensure_topics(after, SOURCES)
        accepted = gone_on(after, offsets, len(read))
        lake, bootstrap = after.lake_root, after.kafka.bootstrap
        assert judge.lost_or_doubled_records(lake, read, accepted) == []
        assert judge.nameless_records(lake) == []
        assert judge.doubled_findings(lake) == []
        assert judge.unattributed_findings(lake) == []
        new = judge.topic(bootstrap, after.kafka.alerts_topic)
        assert len(new) > 0
        assert judge.wrong_on_topic(lake, [*alerts, *new]) == []
        assert judge.wrong_states(new, judge.topic(bootstrap, after.kafka.state_topic)) == []
    finally:
        anew.stop()


def gone_on(settings: Settings, offsets: dict[str, int], records: int) -> dict[judge.Place, bytes]:
    """What came to the new broker after a person accepted what is missing, and is through."""
    with pytest.raises(Fatal, match=r"the topic was made anew.*see 'headgate gaps'"):
        require_no_gap(settings)
    gaps = find_gaps(settings)
    assert {f"{one.topic}:{one.partition}": one.from_offset for one in gaps} == offsets
    accept(settings, gap_statement(gaps), "a test", "the broker was lost")
    require_no_gap(settings)
    flow = Flow(settings, SEED + 1, per_second=60).start()
    with driver(settings, ALERTING) as running:
        before, told = batches(settings), heard(settings)
        until(running, lambda: batches(settings) > before + 2 and heard(settings) > told + 2)
        flow.stop()
        settle(settings, running, records + len(flow.accepted))
    return flow.accepted
