"""A checkpoint of job sessions made anew from the tables goes on as if nothing had happened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from enrich.dhcp.checkpoint_rebuild import rebuild
from enrich.dhcp.lease_rules import DECLINE, RELEASE
from enrich.dhcp.sessions_job import sessions
from enrich.dhcp.state_encoding import CELLS, VERSION, WHOLE
from enrich.dhcp.state_layout import StateLayout, claim, layout_folder, note_layout, read_layout
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import load
from infra.errors import Fatal, Usage
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.enrich.rows import A, B, dhcp, finished, put

JOBS = {"session_buckets": 3, "allowed_lateness_seconds": 600}
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
    """A lake whose job has worked through what there is, in two batches."""
    lake = Lake(lake.spark, load(home=tmp_path, jobs=JOBS))
    run(lake, BEFORE, 2650)
    run(lake, LAST, 3000)
    return lake


def copied(lake: Lake, home: Path, **jobs: Any) -> Lake:
    shutil.copytree(lake.settings.home, home, ignore=shutil.ignore_patterns("spark-*", "copy"))
    return Lake(lake.spark, load(home=home, jobs=JOBS | jobs))


def told(lake: Lake, *without: str) -> list[Any]:
    return sorted(lake.read(DHCP_SEGMENT).drop(*without).collect(), key=str)


def order_said(lake: Lake) -> dict[str, list[Any]]:
    """By address, what was said of it in the order of revisions: other buckets number them anew."""
    said: dict[str, list[Any]] = {}
    for row in lake.read(DHCP_SEGMENT).where("ip IS NOT NULL").orderBy("rev").collect():
        said.setdefault(row.ip, []).append((row.kind, row.seg_start, row.seg_end, row.mac))
    return said


@pytest.mark.full
def test_a_lost_checkpoint_and_other_buckets_neither_double_nor_lose_a_segment(
    begun, tmp_path
) -> None:
    lost = copied(begun, tmp_path / "copy", session_buckets=5)
    shutil.rmtree(layout_folder(lost.settings))
    with pytest.raises(Exception, match="written under another checkpoint"):
        run(lost, [], 3001)
    shutil.rmtree(layout_folder(lost.settings))
    done = rebuild(lost)
    assert (done.addresses, done.unplayed, done.kept, done.from_batch) == (4, 0, None, 1)
    assert (done.version, done.buckets) == (VERSION, 5)

    put(begun, EVENT, [finished(3001)])
    run(begun, AFTER, 3300)
    run(lost, AFTER, 3300)
    assert told(lost, "rev") == told(begun, "rev")
    assert order_said(lost) == order_said(begun)
    audited = [json.loads(file.read_text()) for file in (lost.spool / "audit").glob("*.json")]
    assert [(row["act"], row["outcome"]) for row in audited] == [("sessions.rebuild", "ok")]


def test_another_number_of_buckets_is_refused_until_the_state_is_rebuilt(settings) -> None:
    other = load(home=settings.home, jobs={"session_buckets": 5})
    claim(other)
    claim(settings)  # nothing has run yet
    (layout_folder(settings) / "spark" / "offsets").mkdir(parents=True)
    (layout_folder(settings) / "spark" / "offsets" / "0").write_text("v1\n{}\n{}")
    claim(settings)
    with pytest.raises(Fatal, match=r"has 16 buckets.*session_buckets = 5.*headgate rebuild"):
        claim(other)


def layout_with(settings, shape: StateLayout | None) -> Path:
    """A checkpoint that has run; None: of a release that noted no shape."""
    folder = layout_folder(settings)
    offsets = folder / "spark" / "offsets"
    offsets.mkdir(parents=True)
    assert read_layout(folder) is None
    (offsets / "0").write_text("v1\n{}\n{}")
    if shape is not None:
        note_layout(folder, shape)
    return folder


@pytest.mark.parametrize("noted", [None, StateLayout(WHOLE, 16), StateLayout(VERSION, 16)])
def test_a_checkpoint_with_blobs_of_before_goes_on(settings, noted: StateLayout | None) -> None:
    folder = layout_with(settings, noted)
    assert read_layout(folder) == (noted or StateLayout(WHOLE, None))
    claim(settings)
    assert read_layout(folder) == StateLayout(VERSION, 16)


@pytest.mark.parametrize(
    ("version", "said"), [(CELLS, "lies in cells, a form that is gone"), (7, "has version 7")]
)
def test_a_state_that_is_not_read_is_refused_with_its_remedy(
    settings, version: int, said: str
) -> None:
    folder = layout_with(settings, StateLayout(version, 16))
    with pytest.raises(Fatal, match=rf"{said}.*'headgate rebuild sessions' makes it anew"):
        claim(settings)
    assert read_layout(folder) == StateLayout(version, 16)


def test_a_setting_that_asks_for_cells_names_the_remedy(settings) -> None:
    with pytest.raises(Usage, match=r"session_state = 'cells' is gone.*headgate rebuild sessions"):
        load(home=settings.home, jobs={"session_state": "cells"})


def test_nothing_to_rebuild_is_said_and_changes_nothing(lake) -> None:
    with pytest.raises(Fatal, match="there is nothing to rebuild"):
        rebuild(lake)
    assert not (layout_folder(lake.settings) / "spark").exists()
