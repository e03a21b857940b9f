"""`headgate notebook` takes the lake of the settings, and makes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli import main
from headgate.notebook_command import LESSONS, copy_lessons, environment_of
from infra.config.settings import load


def test_without_a_lake_it_says_so_and_makes_nothing(tmp_path: Path, capsys) -> None:
    home = tmp_path / "nowhere"
    assert main(["--home", str(home), "notebook"]) == 2
    assert f"{home}/lake: there is no lake here" in capsys.readouterr().err
    assert not home.exists()


def test_lessons_that_a_person_changed_stay(tmp_path: Path) -> None:
    copied = copy_lessons(tmp_path / "mine")
    assert [path.name for path in copied] == sorted(path.name for path in LESSONS.glob("*.ipynb"))
    copied[0].write_text("mine")
    copied[1].unlink()
    assert copy_lessons(tmp_path / "mine") == [copied[1]]
    assert copied[0].read_text() == "mine"


def test_a_notebook_opens_the_lake_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CONFIG", "")
    assert environment_of(load(home=tmp_path)) == {"HEADGATE_HOME": str(tmp_path)}
