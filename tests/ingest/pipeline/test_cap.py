"""Whether a batch took all there was is judged by the cap it was planned with, or a smaller one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config.settings import Settings, load
from ingest.pipeline.ingest_job import Cap
from tests.examples import examples


def at(home: Path, cap: int) -> Settings:
    return load(home=home, jobs={"max_offsets_per_batch": cap})


def spark(home: Path, *, done: int, planned: int) -> None:
    """A checkpoint that stands there."""
    folder = home / "checkpoints" / "ingest" / "spark"
    for name, last in (("commits", done), ("offsets", planned)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(last + 1):
            (folder / name / str(number)).write_text('v1\n{}\n{"logs.a": {"0": 5}}')


def test_a_batch_planned_before_a_restart_counts_by_the_smaller_cap(tmp_path: Path) -> None:
    Cap(at(tmp_path, 1_000))
    spark(tmp_path, done=3, planned=4)
    cap = Cap(at(tmp_path, 50_000))
    assert cap(4) == 1_000
    assert cap(5) == 50_000
    spark(tmp_path, done=5, planned=6)
    smaller = Cap(at(tmp_path, 2_000))
    assert smaller(6) == 2_000


def test_with_nothing_in_flight_the_cap_is_the_new_one_at_once(tmp_path: Path) -> None:
    Cap(at(tmp_path, 1_000))
    spark(tmp_path, done=3, planned=3)
    assert Cap(at(tmp_path, 50_000))(4) == 50_000


@pytest.mark.parametrize("text", ["", "{}", '{"cap": "many"}', "[1]", '{"cap": 20'])
def test_a_damaged_cap_claims_least_and_is_written_anew(tmp_path: Path, text: str) -> None:
    Cap(at(tmp_path, 1_000))
    spark(tmp_path, done=3, planned=4)
    (tmp_path / "checkpoints" / "ingest" / "cap.json").write_text(text)
    cap = Cap(at(tmp_path, 50_000))
    assert [cap(4), cap(5)] == [1, 50_000]
    assert Cap(at(tmp_path, 60_000))(4) == 50_000


run = st.tuples(st.integers(1, 10**6), st.integers(0, 2), st.booleans())


@examples(25)
@given(st.lists(run, min_size=1, max_size=5))
def test_no_history_of_restarts_and_crashes_judges_by_a_larger_cap(
    tmp_path_factory, runs: list[tuple[int, int, bool]]
) -> None:
    """`runs`: the cap of a run, how many batches it finished, and whether it died in the next."""
    home = tmp_path_factory.mktemp("home")
    planned_with: dict[int, int] = {}
    done = -1
    for now, batches, dies in runs:
        cap = Cap(at(home, now))
        for number in range(done + 1, done + 1 + batches):
            assert cap(number) <= planned_with.setdefault(number, now)
        done += batches
        if dies:
            planned_with.setdefault(done + 1, now)
        in_flight = done + 1 in planned_with
        if done >= 0 or in_flight:
            spark(home, done=done, planned=done + in_flight)
    kept = json.loads((home / "checkpoints" / "ingest" / "cap.json").read_text())
    assert 1 <= kept["cap"] <= max(now for now, _, _ in runs)
