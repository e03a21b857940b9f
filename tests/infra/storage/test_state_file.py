"""State files: whole, typed, named when damaged, and the bytes of every one as they ever were."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.backtest import result
from alerts.coverage.state import CoverageReport
from alerts.coverage.state import CoverageState as Coverage
from alerts.rulepack.rule_pack import PackStore
from enrich.dhcp import state_layout
from enrich.rollup.unpublished import UnpublishedHours
from infra.checkpoint import failed_batch
from infra.config.settings import Settings, load
from infra.delta import retention
from infra.errors import Fatal
from infra.storage.state_file import JsonLayout, StateFile
from infra.streaming import rate_estimates
from infra.streaming.rate_controller import Learned, RateLine
from ingest.completeness.ledger_state import LedgerCheckState as Ledger
from ingest.pipeline.ingest_job import Cap
from ingest.quality.outcome_store import QualityState as Quality
from reporting.erasure.request import ErasureProgress, save

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


@dataclass
class Mark:
    name: str
    seen: int = 0
    parts: dict[str, list[str]] = field(default_factory=dict)


def mark_file(folder: Path, **options: Any) -> StateFile[Mark]:
    return StateFile(folder / "mark.json", Mark, "remove it", **options)


marks = st.builds(
    Mark,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(-(2**53), 2**53),
    st.dictionaries(st.text('ab"\\é'), st.lists(st.text("ab"), max_size=3), max_size=3),
)


@given(value=marks, layout=st.sampled_from(JsonLayout))
def test_what_is_written_is_read_again_in_every_layout(
    tmp_path_factory: pytest.TempPathFactory, value: Mark, layout: JsonLayout
) -> None:
    file = mark_file(tmp_path_factory.mktemp("state"), layout=layout)
    assert file.read() is None
    file.write(value)
    assert file.read() == value
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[1]", b"{}", b"\x00\xff", b'{"name": 1}', b'{"name": "a", "seen": "1"}'],
)
def test_a_damaged_one_is_named_with_its_remedy(tmp_path: Path, content: bytes) -> None:
    file = mark_file(tmp_path)
    file.path.write_bytes(content)
    with pytest.raises(Fatal) as refused:
        file.read()
    assert str(refused.value).startswith(f"{file.path} is damaged (")
    assert str(refused.value).endswith("; remove it")
    sentences: list[str] = []
    assert file.read_or(None, sentences.append) is None
    assert sentences == [str(refused.value)]


def test_a_key_nobody_knows_is_refused_unless_a_later_release_may_have_written_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "mark.json").write_text('{"name": "a", "colour": "green"}')
    with pytest.raises(Fatal, match="unknown key 'colour'"):
        mark_file(tmp_path).read()
    assert mark_file(tmp_path, newer_keys=True).read() == Mark("a")


# -- the bytes of each file, as releases before this class wrote them ------------------------------


def settings(home: Path) -> Settings:
    return load(home=home, kafka={"rollups_topic": "rollups"})


def learned(home: Path) -> Path:
    rate_estimates.write_estimates(home, Learned(seconds=RateLine(0.5, 1.0, 2.0, 3.0, 4.0, 5.0)))
    return home / "learned.json"


def expired(home: Path) -> Path:
    retention.note_retention(home, retention.Applied(NOON, {"zeek": NOON, "sshd": NOON}))
    return home / "_expired"


def trouble(home: Path) -> Path:
    failed_batch.failed(home, 7, 2, "KeyError: 'é'", None, 1)
    text = json.loads((home / "poison.json").read_text())
    (home / "poison.json").write_text(
        (home / "poison.json").read_text().replace(text["at"], "2026-11-24T12:00:00+00:00")
    )
    return home / "poison.json"


def quality(home: Path) -> Path:
    Quality("2026-11-24T12:00:00+00:00", {"b": "1", "a": "2"}, told={"sshd": ["x"]}).save(home)
    return home / "state.json"


def ledger(home: Path) -> Path:
    Ledger(
        at="2026-11-24T12:00:00+00:00",
        through={"raw:0": ("kafka", 5)},
        again=[("raw", 0, "kafka", 1, 2, "all")],
    ).save(home)
    return home / "check.json"


def coverage(home: Path) -> Path:
    Coverage(until="x", told={"a": CoverageReport("é", "high", "s", ["r"])}).save(home)
    return home / "state.json"


def cap(home: Path) -> Path:
    jobs = {"max_offsets_per_batch": 1234}
    Cap(load(home=home, jobs=jobs))
    return home / "checkpoints" / "ingest" / "cap.json"


def shape(home: Path) -> Path:
    state_layout.note_layout(home, state_layout.StateLayout(2, 64))
    return home / "state.json"


def unpublished(home: Path) -> Path:
    UnpublishedHours(settings(home), [("source", NOON), ("user", NOON)]).note()
    return next((home / "checkpoints" / "rollup" / "untold").glob("*.json"))


def switches(home: Path) -> Path:
    store = PackStore(home)
    store.disable("b", "ana", "loud — é", NOON)
    store.disable("a", "ana", "loud", NOON)
    return home / "switches.json"


def erasure(home: Path) -> Path:
    save(home / "e.json", ErasureProgress("i", "s", "p", "b", ["ann é"], {"silver.event": 3}))
    return home / "e.json"


def backtest(home: Path) -> Path:
    result.keep_result(home, {"alerts": 1, "by": {"high": [1]}, "empty": []}, [])
    return home / "result.json"


WRITERS: list[Callable[[Path], Path]] = [
    learned,
    expired,
    trouble,
    quality,
    ledger,
    coverage,
    cap,
    shape,
    unpublished,
    switches,
    erasure,
    backtest,
]


@pytest.mark.parametrize("write", WRITERS)
def test_an_upgrade_changes_no_byte_of_a_file(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    before = Path(__file__).parent / "state_files" / f"{write.__name__}.json"
    assert write(tmp_path).read_bytes() == before.read_bytes()
