"""Where there is nothing, it is said where one looked and what lies near; nothing is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.config.settings import load
from infra.errors import Fatal
from infra.runtime.nearby_homes import require_home


@pytest.mark.parametrize(
    ("asked", "there"),
    [(".headgate", ".headgate/demo"), ("other", ".headgate/demo"), ("a/b", "a/c"), ("x", "x/demo")],
)
def test_a_home_that_lies_near_is_named_with_the_command(
    asked: str, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(there, "lake").mkdir(parents=True)
    before = sorted(Path().rglob("*"))
    with pytest.raises(Fatal, match=f"{asked}: .*; {there} exists: headgate --home {there} status"):
        require_home(load(home=Path(asked)), "status")
    assert sorted(Path().rglob("*")) == before


def test_where_nothing_is_near_the_way_to_begin_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Fatal, match="headgate up"):
        require_home(load(home=tmp_path / "none"), "status")
    (tmp_path / "none" / "status").mkdir(parents=True)
    require_home(load(home=tmp_path / "none"), "status")
