"""A report says how far it is, by its questions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.cli import main
from infra.config.settings import load
from infra.process import progress
from infra.process.progress import into_file, progress_in
from reporting.document.making_progress import MakingProgress
from reporting.reports import reports
from tests.api.story import ALERTS, A
from tests.reporting.memory_lake import story_in_memory

Told = list[tuple[str, float | None, float | None]]


def made(home: Path, name: str, questions: int) -> Told:
    """What a report of so many questions and two files told."""
    told: Told = []
    making = MakingProgress(load(home=home), name, 2, lambda *step: told.append(step))
    for _ in range(questions):
        making.asks()
    making.answered()
    return told


def test_the_second_of_a_name_knows_how_many_questions_there_are(tmp_path: Path) -> None:
    assert made(tmp_path, "daily", 3) == [
        ("question 1", None, None), ("question 2", None, None), ("question 3", None, None),
        ("writing its files", 3, 5),
    ]  # fmt: skip
    again = made(tmp_path, "daily", 4)
    assert again[0] == ("question 1 of about 3", 0, 5)
    assert [done for _, done, _ in again] == [0, 1, 2, 2, 4], "it never stands at its end"
    assert made(tmp_path, "daily", 1)[0] == ("question 1 of about 4", 0, 6)
    assert made(tmp_path, "weekly", 1)[0] == ("question 1", None, None)


@pytest.mark.parametrize("name", [name for name in reports() if name != "query"])
def test_the_first_one_tells_how_far_it_is_by_what_its_report_says(
    name: str, tmp_path: Path
) -> None:
    told: Told = []
    listed = reports()[name]
    making = MakingProgress(
        load(home=tmp_path), name, 2, lambda *step: told.append(step), listed.questions
    )
    subject = {"device": A, "incident": ALERTS[0]["alert_id"]}.get(name, "")
    request = story_in_memory().request(tmp_path, subject=subject)
    listed.load().compose(replace(request, asks=making.asks))
    making.answered()
    questions = listed.questions
    assert questions is not None
    assert told == [
        *((f"question {n} of about {questions}", n - 1, questions + 2)
          for n in range(1, questions + 1)),
        ("writing its files", questions, questions + 2),
    ]  # fmt: skip


def test_a_damaged_note_costs_the_percent_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report-questions.json").write_text("{")
    assert made(tmp_path, "daily", 1)[0] == ("question 1", None, None)
    assert "report-questions.json" in capsys.readouterr().err
    assert made(tmp_path, "daily", 1)[0] == ("question 1 of about 1", 0, 3)


def test_who_waits_reads_it_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "how-far"
    assert progress_in(file) == {}
    tell = into_file(file)
    tell("question 1", None, None)
    assert progress_in(file) == {"step": "question 1", "progress": None}
    tell("question 2 of about 3", 1, 4)
    assert progress_in(file)["step"] == "question 1", "not with each question"
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    tell("question 3 of about 3", 2, 4)
    assert progress_in(file) == {"step": "question 3 of about 3", "progress": 50.0}
    file.write_text("[")
    assert progress_in(file) == {}


@pytest.mark.full
def test_the_command_leaves_how_far_it_is(
    empty_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    (tmp_path / "lake").symlink_to(empty_tables)
    words = ["--home", str(tmp_path), "report", "run", "daily", "--interval", "2026-11-20"]
    for _ in range(2):
        assert main([*words, "--format", "json", f"--progress={tmp_path / 'how-far'}"]) == 0
        left = json.loads((tmp_path / "how-far").read_text())
        assert left["step"] == "writing its files"
        assert 90 < left["progress"] < 100
    assert json.loads((tmp_path / "report-questions.json").read_text())["by_report"]["daily"] > 5
