"""How large a plant must be: the formulas, and where their figures come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli import main
from infra.errors import Usage
from infra.runtime.sizing import Load, MeasuredLoad, measured, sized
from infra.spark.session import project_root

KNOWN = MeasuredLoad(
    parse=10_000,
    detect=100_000,
    standing=1.5,
    others=0.00002,
    worker_mb=400,
    bronze=0.3,
    silver=0.2,
    event_bytes=500,
    device_bytes=150,
)
LOAD = Load(events_per_second=100_000, event_bytes=500, devices=200_000, days=30, busy=0.5)
RESULTS = project_root() / "bench" / "results"


def values(load: Load, known: MeasuredLoad = KNOWN) -> dict[str, float]:
    return {figure.name: figure.value for figure in sized(load, known)}


def test_the_plant_of_a_load_worked_out_by_hand() -> None:
    found = values(LOAD)
    # 100,000 x (0.0001 + 0.00001) CPU seconds = 11 cores at work, twice that for half the time.
    assert found["cores of ingest"] == 22
    assert found["executors of ingest"] == 6
    # 1.5 in any case, and 100,000 x 0.00002 CPU seconds, twice that for half the time.
    assert found["cores of drivers and the other jobs"] == pytest.approx(5.5)
    assert found["memory of an executor of ingest"] == pytest.approx(2 + 4 * 0.4)
    assert found["partitions of logs.*, at least"] == 22
    assert found["data files of a batch, at most"] == 66
    assert found["spark.shuffle_partitions"] == 4
    assert found["state of sessions"] == pytest.approx(30)  # 200,000 x 150 bytes
    assert found["raw data"] == pytest.approx(4_320)  # 100,000 x 500 x 86,400 bytes
    assert found["lake, a day"] == pytest.approx(2_160)
    assert found["lake, 30 days"] == pytest.approx(64.8)
    # A TB is 2 x 10^9 events of 500 bytes: 260,000 CPU seconds, at half use 144.4 hours of a core.
    assert found["a raw TB takes"] == pytest.approx(144.4)
    assert found["and leaves in the lake"] == pytest.approx(0.5)
    assert found["an hour's outage is worked off in"] == 1


@given(st.floats(1, 1e7), st.integers(0, 10_000_000), st.integers(2, 50))
def test_cores_follow_the_rate_state_the_keys_and_the_lake_the_volume(
    rate: float, devices: int, times: int
) -> None:
    load = replace(LOAD, events_per_second=rate, devices=devices)
    before = values(load)
    larger = values(replace(load, event_bytes=load.event_bytes * times))
    assert larger["cores of ingest"] == before["cores of ingest"]
    assert larger["lake, a day"] == pytest.approx(before["lake, a day"] * times, abs=0.1 * times)
    more = values(replace(load, devices=devices * times))
    assert more["state of sessions"] == pytest.approx(
        before["state of sessions"] * times, abs=0.1 * times
    )
    assert more["lake, a day"] == before["lake, a day"]
    faster = values(replace(load, events_per_second=rate * times))
    # Rounded up: less than a core more than what it would take exactly.
    assert faster["cores of ingest"] > (before["cores of ingest"] - 1) * times - 1e-6
    assert faster["state of sessions"] == before["state of sessions"]


@given(st.floats(0.05, 0.9), st.floats(1, 1e7))
def test_cores_are_enough_for_the_rate_within_the_share(busy: float, rate: float) -> None:
    found = values(replace(LOAD, busy=busy, events_per_second=rate))
    work = rate * (1 / KNOWN.parse + 1 / KNOWN.detect)
    assert work <= found["cores of ingest"] * busy * (1 + 1e-9)


def test_figures_are_those_of_the_benchmarks() -> None:
    known = measured(RESULTS)
    sources = json.loads((RESULTS / "sources.json").read_text("utf-8"))["measures"]
    assert known.parse == next(m["value"] for m in sources if m["name"] == "mix: ours, from Kafka")
    footprint = json.loads((RESULTS / "footprint.json").read_text("utf-8"))["measures"]
    told = {m["name"]: m["value"] for m in footprint}
    assert known.device_bytes == told["state of job sessions"]
    assert 0 < known.silver < 2
    assert known.standing > 0


@pytest.mark.parametrize("name", ["sources", "rules", "standing", "footprint"])
def test_results_that_are_missing_are_named_with_the_remedy(name: str, tmp_path: Path) -> None:
    for file in RESULTS.glob("*.json"):
        if file.stem != name:
            (tmp_path / file.name).write_text(file.read_text("utf-8"))
    with pytest.raises(Usage, match=rf"{name}\.json: no such results; 'make bench ONLY={name}'"):
        measured(tmp_path)


def test_the_command_tells_programs_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["size", "--events-per-second", "100000", "--devices", "200000", "--output", "json"]
    assert main(asked) == 0
    told = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    known = measured(RESULTS)
    load = Load(100_000, known.event_bytes, 200_000, 365, 0.5)
    assert told == values(load, known)


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--busy", "1"), "--busy 1.0"), (("--devices", "-1"), "--devices: '-1'")],
)
def test_what_makes_no_sense_is_refused(
    options: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["size", "--events-per-second", "1", *options])
    except SystemExit as ended:  # argparse ends by itself
        code = ended.code
    assert code == 2
    assert words in capsys.readouterr().err


PLANTS = (1_000, 83_450, 100_000, 5_000_000)
"""Events a second of the plants that docs/explanation/sizing.md shows."""


def volume(gigabytes: float) -> str:
    for unit, size in (("PB", 1e6), ("TB", 1e3), ("GB", 1.0)):
        if gigabytes >= size:
            return f"{gigabytes / size:.{1 if gigabytes < 10 * size and size > 1 else 0}f} {unit}"
    return f"{gigabytes:.1f} GB"


def test_the_page_shows_what_the_command_computes() -> None:
    known = measured(RESULTS)
    plants = [values(Load(rate, known.event_bytes, 10_000, 90, 0.5), known) for rate in PLANTS]

    def row(name: str, figure: str, form: Callable[[float], str] = "{:,.0f}".format) -> str:
        return f"| {name} | {' | '.join(form(plant[figure]) for plant in plants)} |"

    page = (project_root() / "docs" / "explanation" / "sizing.md").read_text("utf-8")
    memory = plants[0]["memory of an executor of ingest"]
    wanted = (
        f"parse {known.parse:,.0f} and detect {known.detect:,.0f} events a CPU second",
        row("cores of `ingest`, busy 0.5", "cores of ingest"),
        row(f"executors of 4 cores, {memory:.1f} GB", "executors of ingest"),
        row(
            "cores of drivers and other jobs",
            "cores of drivers and the other jobs",
            lambda cores: f"{cores:,.{0 if cores >= 10 else 1}f}",
        ),
        row("partitions of `logs.*`, at least", "partitions of logs.*, at least"),
        row("raw data a day", "raw data", volume),
        row("lake a day", "lake, a day", volume),
        row("lake, 90 days", "lake, 90 days", lambda terabytes: volume(terabytes * 1000)),
        f"A raw TB is {plants[0]['a raw TB takes']:.0f} core-hours at `busy` 0.5",
    )
    assert [line for line in wanted if line not in page] == []
