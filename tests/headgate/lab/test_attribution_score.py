"""The scorer counts right, wrong and unknown, of any product; and what ours come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.cli import main
from headgate.lab.attribution_score import last_answers, own_answers, read_answers, score
from headgate.lab.record_files import read_lines
from headgate.lab.write import make_day, write_day
from infra.errors import Usage

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
TRUTH = [
    {"id": 1, "time": "2026-03-03T08:00:00+00:00", "ip": "10.0.0.1", "mac": A, "device": "pc-a"},
    {"id": 2, "time": "2026-03-03T09:00:00+00:00", "ip": "10.0.0.1", "mac": B, "device": "pc-b"},
    {"id": 3, "time": "2026-03-03T08:00:00+00:00", "ip": "10.0.0.2", "mac": A, "device": "pc-a"},
    {"id": 4, "time": "2026-03-03T10:00:00+00:00", "ip": "10.0.0.1", "mac": None, "device": None},
]


def counts(*answers: dict[str, object]) -> tuple[int, int, int]:
    row = score(TRUTH, answers)[-1]
    return row["right"], row["wrong"], row["unknown"]


def test_no_answer_is_right_where_nobody_held_it_and_unknown_elsewhere() -> None:
    assert counts() == (1, 0, 3)
    assert counts({"id": 1, "mac": ""}, {"id": 2, "mac": None}, {"id": 4, "device": ""}) == (
        1,
        0,
        3,
    )


def test_a_device_is_named_by_address_or_name_in_any_notation() -> None:
    named = {"time": "2026-03-03T10:00:00+01:00", "ip": "10.0.0.1", "device": "PC-B.corp.example"}
    dashes = {"id": "1", "mac": "02-00-00-00-00-0A"}
    dots = {"id": 3, "mac": "0200.0000.000a", "device": "of no matter"}
    assert counts(named, dashes, dots) == (4, 0, 0)


def test_another_device_is_wrong_and_so_is_any_where_nobody_held_it() -> None:
    assert counts({"id": 1, "mac": B}, {"id": 2, "device": "pc-a"}, {"id": 4, "mac": A}) == (
        0,
        3,
        1,
    )


def test_kinds_of_questions_are_told_apart() -> None:
    rows = {row["kind"]: row for row in score(TRUTH, [{"id": 3, "mac": A}])}
    assert {kind: row["asked"] for kind, row in rows.items()} == {
        "held": 1, "handed on": 2, "nobody": 1, "all": 4,
    }  # fmt: skip
    assert rows["held"]["right_percent"] == 100.0
    assert rows["all"]["right_percent"] == 50.0


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([{"id": 9, "mac": A}], "answer 1 is to no question"),
        ([{"ip": "10.0.0.9", "time": "2026-03-03T08:00:00Z"}], "answer 1 is to no question"),
        ([{"id": 1, "mac": A}, {"id": 1, "mac": B}], "answer 2 is a second one to question 1"),
        ([{"ip": "10.0.0.1", "time": "noon"}], "neither an id nor a time as ISO 8601"),
    ],
)
def test_answers_that_cannot_be_meant_are_refused(answers: list[dict[str, str]], why: str) -> None:
    with pytest.raises(Usage, match=why):
        score(TRUTH, answers)


def test_answers_are_csv_or_json_lines(tmp_path: Path) -> None:
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_text("id,mac\n1,02:00:00:00:00:0a\n4,\n")
    lines.write_text(json.dumps({"id": 1, "mac": A}) + "\n\n" + json.dumps({"id": 4}) + "\n")
    assert score(TRUTH, read_answers(table)) == score(TRUTH, read_answers(lines))
    lines.write_text("id,mac\n")
    with pytest.raises(Usage, match="line 1: no JSON"):
        read_answers(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lab") / "day"
    write_day(make_day(), made)
    return made


def test_ours_are_right_each_time_and_without_time_they_would_not_be(folder: Path) -> None:
    truth = read_lines(folder / "truth_lookups.jsonl")
    ours, without = score(truth, own_answers(folder))[-1], score(truth, last_answers(folder))[-1]
    assert ours["right"] == ours["asked"] > 1_500
    assert without["right_percent"] < 70


def test_a_lost_line_makes_hardly_anybody_else_the_holder(tmp_path: Path) -> None:
    folder = tmp_path / "day"
    write_day(make_day(lost=0.05), folder)
    all_kinds = score(read_lines(folder / "truth_lookups.jsonl"), own_answers(folder))[-1]
    assert all_kinds["right_percent"] > 90
    assert all_kinds["unknown"] > 0
    assert all_kinds["wrong"] <= 0.01 * all_kinds["asked"]


def test_the_command_scores_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = folder / "answers.jsonl"
    answers.write_text("".join(json.dumps(a) + "\n" for a in last_answers(folder)))
    assert main(["lab", "score", str(folder), str(answers), "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[-1]["kind"] == "all"
    assert rows[-1]["wrong"] > 300
