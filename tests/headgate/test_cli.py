"""How a part of the platform ends."""

from __future__ import annotations

import pytest

from headgate.cli import BUG, part
from infra.errors import Fatal


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
