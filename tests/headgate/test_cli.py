"""How a part of the platform ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli import BUG, _Parser, main, part
from infra.errors import Fatal
from infra.runtime.command_registry import COMMANDS, TASKS


def test_an_error_that_is_not_ours_ends_a_part_otherwise_than_a_no(capsys) -> None:
    def broken() -> int:
        raise ValueError("a bug")

    assert part(lambda: 1) == 1
    assert part(broken) == BUG > 1
    assert "ValueError: a bug" in capsys.readouterr().err


def test_an_end_that_was_asked_for_stays_one() -> None:
    def ended() -> int:
        raise SystemExit(2)

    with pytest.raises(SystemExit):
        part(ended)
    assert part(lambda: Fatal.exit_code) == 1


def test_the_help_lists_each_command_once_below_its_task(capsys) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(listed) == sorted(COMMANDS)
    assert [line[:-1] for line in lines if line.removesuffix(":") in TASKS] == list(TASKS)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("rulse", "list"), "did you mean 'rules'?"),
        (("rules", "lsit"), "no verb 'lsit'; did you mean 'list'?"),
        (("suppress", "quiet"), "no verb 'quiet'; there are add, list, remove"),
        (("suppress",), "say what to do: add, list, remove"),
        (("rules", "list", "--outptu", "csv"), "did you mean '--output'?"),
        (("rules", "list", "--output", "jsno"), "did you mean 'json'?"),
        # By what it means, among the options of that verb alone.
        (("rules", "preview", "r", "--from", "7d"), "--from 7d; did you mean '--since'?"),
        (("alerts", "list", "--to", "now"), "unrecognized arguments: --to now\n"),
        (("alerts", "list", "--json"), "did you mean '--output json'?"),
        (("alerts", "list", "--max", "5"), "did you mean '--limit'?"),
        (("alerts", "list", "--verdict", "x"), "it is an option of 'alerts close'"),
        (("alerts", "list", "--lvel", "high"), "did you mean '--level'?"),
        (("alerts", "list", "--quiet"), "unrecognized arguments: --quiet\n"),
        (("alerts", "list", "--home", "x"), "it stands before the command: headgate --home"),
        (("alerts", "list", "--limit", "x"), "argument --limit: 'x': write a whole number from 1"),
        (("replay", "--speed", "x"), "argument --speed: 'x': write a number above 0, such as"),
        (("rules", "tune", "r", "--expires", "x"), "--expires: 'x': write a date, such as 2026-"),
        (("capacity", "--events-per-second", "x"), "'x': write a number above 0"),
        (("rules", "thresholds", "r", "--count", "3,x"), "'3,x': write numbers, such as 3,5,10"),
        (("rules", "thresholds", "r", "--count", "3,inf"), "'3,inf': write numbers, such as"),
        (("rules", "thresholds", "r", "--count", "nan"), "'nan': write numbers, such as 3,5,10"),
    ],
)
def test_a_mistyped_word_is_told_what_it_may_have_meant(
    words: tuple[str, ...], hint: str, capsys
) -> None:
    try:
        code: object = main(words)
    except SystemExit as ended:  # argparse ends by itself
        code = ended.code
    assert code == 2
    assert hint in capsys.readouterr().err


def test_what_an_error_repeats_of_a_file_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "list.csv"
    file.write_text("na\x1b]0;owned\x07me,b\n1,2\n")
    assert main(["--home", str(tmp_path), "indicators", "load", "x", str(file)]) == 2
    words = capsys.readouterr().err
    assert "no column value" in words
    assert "\x1b" not in words
    file = tmp_path / "list.txt"
    file.write_text("1.2.3.4\n5.6.7.8\n9.9.9.9\nno\x1b[2Jindicator\n")
    assert main(["--home", str(tmp_path), "indicators", "load", "x", str(file)]) == 0
    words = capsys.readouterr().err
    assert "refused: " in words
    assert "\x1b" not in words


def test_a_span_before_now_is_a_value_of_its_option_and_no_option() -> None:
    parser = _Parser()
    verb = parser.add_subparsers().add_parser("list")
    verb.add_argument("--since")
    for span in ("-24h", "-7d", "-90m", "-5"):
        assert parser.parse_args(["list", "--since", span]).since == span
    with pytest.raises(SystemExit):
        parser.parse_args(["list", "--since", "-x"])


def test_a_command_without_an_output_ends_well() -> None:
    command = [sys.executable, "-m", "headgate.cli", "tables"]
    ran = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_full_disk_is_told_in_a_sentence() -> None:
    for words in (["tables"], ["--help"]):
        with open("/dev/full", "w") as full:  # a device whose every write finds no space
            ran = subprocess.run(
                [sys.executable, "-m", "headgate.cli", *words],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        sentence = "headgate: the output: No space left on device; make room and run it again\n"
        assert (ran.returncode, ran.stderr) == (1, sentence)
