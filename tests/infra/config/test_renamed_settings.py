"""A former name of a setting works for one release, in the file and in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.config import renamed_settings
from infra.config.renamed_settings import RENAMED_SETTINGS
from infra.config.settings import Settings, load
from infra.errors import Usage


def value_of(settings: Settings, former: str, new: str) -> Any:
    section: Any = settings
    for word in former.split(".")[:-1]:
        section = section["drop"] if word == "*" else getattr(section, word)
    return getattr(section, new)


def file_with(tmp_path: Path, former: str, *names: str) -> Path:
    file = tmp_path / "headgate.toml"
    table = former.rpartition(".")[0].replace("*", "drop")
    folder = "paths = ['/x']\nsource = 'sshd'\n" if "*" in former else ""
    lines = "".join(f"{name} = 17\n" for name in names)
    file.write_text(f"[{table}]\n{folder}{lines}")
    return file


@pytest.mark.parametrize(("former", "new"), RENAMED_SETTINGS.items())
def test_a_former_name_in_the_file_works_and_says_the_new_one_once(
    former: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(renamed_settings, "_warned", set())
    word = former.rpartition(".")[2]
    file = file_with(tmp_path, former, word)
    assert value_of(load(file), former, new) == 17
    load(file)
    (line,) = capsys.readouterr().err.splitlines()
    named = former.replace("*", "drop")
    assert line == (f"headgate: setting {named} is called {named.removesuffix(word)}{new} now")
    assert value_of(load(file_with(tmp_path, former, new)), former, new) == 17
    with pytest.raises(Usage, match="set one of them, not both"):
        load(file_with(tmp_path, former, word, new))


def test_a_former_name_in_the_environment_works_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(renamed_settings, "_warned", set())
    monkeypatch.setenv("HEADGATE_JOBS__LATE_SECONDS", "42")
    file = file_with(tmp_path, "jobs.late_seconds", "allowed_lateness_seconds")
    assert load(file).jobs.allowed_lateness_seconds == 42  # the environment wins
    assert "jobs.late_seconds is called jobs.allowed_lateness_seconds" in capsys.readouterr().err
    monkeypatch.setenv("HEADGATE_JOBS__ALLOWED_LATENESS_SECONDS", "43")
    with pytest.raises(Usage, match="set one of them, not both"):
        load()


def test_a_former_section_works_in_the_file_and_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(renamed_settings, "_warned", set())
    file = tmp_path / "headgate.toml"
    file.write_text("[upkeep]\nminutes = 17\nfile_mb = 8\n")
    assert load(file).maintenance.minutes == 17
    assert capsys.readouterr().err == "headgate: setting upkeep is called maintenance now\n"
    monkeypatch.setenv("HEADGATE_UPKEEP__MINUTES", "18")
    both = load(file).maintenance
    assert (both.minutes, both.file_mb) == (18, 8)
    monkeypatch.setenv("HEADGATE_MAINTENANCE__MINUTES", "19")
    with pytest.raises(Usage, match="set one of them, not both"):
        load(file)
