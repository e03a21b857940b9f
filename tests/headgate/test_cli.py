"""How a part of the platform ends."""

from __future__ import annotations

import pytest

from headgate.cli import BUG, main, part
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
        (("rules", "lsit"), "did you mean 'list'?"),
        (("rules", "list", "--outptu", "csv"), "did you mean '--output'?"),
        (("rules", "list", "--output", "jsno"), "did you mean 'json'?"),
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
