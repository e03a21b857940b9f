"""A checkpoint of job sessions made anew from the tables goes on as if nothing had happened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from enrich.jobs import sessions
from enrich.leases import DECLINE, RELEASE
from enrich.rebuild import rebuild
from enrich.shape import folder
from enrich.tables import DHCP_SEGMENT
from infra.lake import Lake
from infra.settings import load
from ingest.tables import EVENT
from tests.enrich.rows import A, B, dhcp, finished, put

JOBS = {"session_buckets": 3, "late_seconds": 600}
LONG = 40 * 3600
OTHER, THIRD, FOURTH, FIFTH = (f"10.0.0.{n}" for n in (2, 3, 4, 5))

# All addresses but .5 are held when the checkpoint is lost at 3000.
#
#            0        600       1200      1800      2400      3000 |     3600
# .1   A     G---------r---------r---------r---------r---------r---|-- B takes over at 3100
# .2   A     G----------------------------------------------------| a lease of 40 h; released
# .3   A          G-----------------------------------B-----------| B takes over at 2500
# .4   B                                       r comes after G-----| out of order, before the cut
# .5   A     G--R                                                  | given again at 3200
BEFORE = [
    *(dhcp(second, A, lease=1200) for second in (0, 600, 1200, 1800, 2390)),
    dhcp(0, A, lease=LONG, ip=OTHER, late=3),
    dhcp(400, A, lease=6000, ip=THIRD),
    dhcp(2500, B, lease=1200, ip=THIRD, late=100),
    dhcp(2395, B, lease=900, ip=FOURTH),
    dhcp(1950, B, lease=900, ip=FOURTH, late=500),
    dhcp(10, A, ip=FIFTH),
    dhcp(20, A, RELEASE, ip=FIFTH),
]
LAST = [dhcp(2980, A, lease=1200), dhcp(100, B, ip=FIFTH, late=2890)]
AFTER = [
    dhcp(3100, B, lease=300),
    dhcp(2700, A, RELEASE, late=420),
    dhcp(3000, A, RELEASE, ip=OTHER, late=90),
    dhcp(2600, B, DECLINE, ip=THIRD, late=550, status_id=2),
    dhcp(3200, B, ip=FIFTH),
    dhcp(2450, B, RELEASE, ip=FOURTH, late=580),
]


def run(lake: Lake, rows: list[dict[str, Any]], second: float) -> None:
    put(lake, EVENT, [*rows, finished(second)])
    sessions(lake, once=True).wait()


@pytest.fixture
def begun(lake: Lake, tmp_path: Path) -> Lake:
    """A lake whose job has worked through what there is, in three batches."""
    lake = Lake(lake.spark, load(home=tmp_path, jobs=JOBS))
    run(lake, [row for row in BEFORE if row["received_at"] <= BEFORE[3]["received_at"]], 1900)
    run(lake, [row for row in BEFORE if row["received_at"] > BEFORE[3]["received_at"]], 2650)
    run(lake, LAST, 3000)
    return lake


def copied(lake: Lake, home: Path, **jobs: int) -> Lake:
    shutil.copytree(lake.settings.home, home, ignore=shutil.ignore_patterns("spark-*", "copy"))
    return Lake(lake.spark, load(home=home, jobs=JOBS | jobs))


def told(lake: Lake, *without: str) -> list[Any]:
    return sorted(lake.read(DHCP_SEGMENT).drop(*without).collect(), key=str)


def test_a_lost_checkpoint_and_other_buckets_neither_double_nor_lose_a_segment(
    begun, tmp_path
) -> None:
    lost = copied(begun, tmp_path / "copy")
    shutil.rmtree(folder(lost.settings))
    with pytest.raises(Exception, match="written under another checkpoint"):
        run(lost, [], 3001)
    shutil.rmtree(folder(lost.settings))
    done = rebuild(lost)
    assert (done.addresses, done.unplayed, done.kept, done.from_batch) == (4, 0, None, 2)

    run(begun, [], 3001)
    run(begun, AFTER, 3300)
    run(lost, AFTER, 3300)
    assert told(lost) == told(begun)
    audited = [json.loads(file.read_text()) for file in (lost.spool / "audit").glob("*.json")]
    assert [(row["act"], row["outcome"]) for row in audited] == [("sessions.rebuild", "ok")]
