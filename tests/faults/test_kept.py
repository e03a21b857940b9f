"""Small files of ours that a disk has damaged are named with what to do, not begun anew unsaid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alerts.coverage.state import CoverageState as Coverage
from enrich.dhcp.state_encoding import WHOLE
from enrich.dhcp.state_layout import StateLayout, read_layout
from infra.errors import Fatal
from ingest.quality.outcome_store import QualityState as Checks


def shape(folder: Path) -> StateLayout | None:
    offsets = folder / "spark" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / "0").touch()
    return read_layout(folder)


READERS: list[tuple[Callable[[Path], Any], str]] = [
    (shape, "headgate rebuild sessions"),
    (Checks.load, "remove it: the next run begins as the first one did"),
    (Coverage.load, "remove it: the next look begins as the first one did"),
]
DAMAGED = [b"", b"{", b"[1]", b'{"version": 1', b"\x00\x00\xff\xfe", b"null"]


@pytest.mark.parametrize(("read", "remedy"), READERS)
@pytest.mark.parametrize("content", DAMAGED)
def test_what_is_damaged_is_named_with_its_remedy(
    tmp_path: Path, read: Callable[[Path], Any], remedy: str, content: bytes
) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(Fatal) as refused:
        read(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / 'state.json'} is damaged (")
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("read", "nothing"),
    [(shape, StateLayout(WHOLE, None)), (Checks.load, Checks()), (Coverage.load, Coverage())],
)
def test_where_nothing_was_kept_nothing_is_damaged(
    tmp_path: Path, read: Callable[[Path], Any], nothing: Any
) -> None:
    assert read(tmp_path) == nothing


def test_an_object_without_anything_in_it_is_no_shape(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(Fatal, match="is damaged"):
        shape(tmp_path)


@pytest.mark.parametrize("read", [shape, Checks.load])
def test_what_this_release_does_not_know_is_named_too(
    tmp_path: Path, read: Callable[[Path], Any]
) -> None:
    (tmp_path / "state.json").write_text('{"colour": "green"}')
    with pytest.raises(Fatal, match="colour"):
        read(tmp_path)
