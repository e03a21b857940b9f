"""A setting that is gone: a value that does no harm is dropped and that is said, others refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.config import removed_settings
from infra.config.removed_settings import REMOVED_SETTINGS
from infra.config.settings import Settings, load
from infra.errors import Usage

DROPPED = [(name, value) for name, gone in REMOVED_SETTINGS.items() for value in gone.dropped]


def file_with(tmp_path: Path, name: str, value: str) -> Path:
    file = tmp_path / "headgate.toml"
    section, _, word = name.rpartition(".")
    file.write_text((f"[{section}]\n" if section else "") + f'{word} = "{value}"\n')
    return file


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_settings, "_warned", set())


@pytest.mark.parametrize(("name", "value"), DROPPED)
def test_a_value_that_does_no_harm_is_dropped_and_said_once(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    file = file_with(tmp_path, name, value)
    assert load(file) == Settings()
    monkeypatch.setenv(f"HEADGATE_{name.upper().replace('.', '__')}", value)
    assert load(file) == Settings()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"headgate: setting {name} is gone, take it out: ")


def test_a_setting_that_is_gone_is_told_of_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("HEADGATE_SINK", "txn")
    assert load() == Settings()
    assert capsys.readouterr().err == (
        "headgate: setting sink is gone, take it out: every commit carries a marker of headgate's "
        "own, and did so beside Delta's txn\n"
    )


def test_a_value_that_it_never_had_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"sink = 'tnx' is gone: .*only marker, txn\); take it out"):
        load(file_with(tmp_path, "sink", "tnx"))
