"""What `headgate verify` shows of many differences."""

from __future__ import annotations

import pytest

from alerts.cli.verify import SHOWN, show_differences


@pytest.mark.parametrize("count", [1, SHOWN, SHOWN + 1, SHOWN + 1_500])
def test_differences_that_are_not_shown_are_counted(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    show_differences([{"kind": "finding", "id": f"f{number}"} for number in range(count)])
    printed = capsys.readouterr().out
    assert f"f{min(count, SHOWN) - 1}" in printed
    assert f"f{SHOWN} " not in f"{printed} "
    more = f"and {count - SHOWN:,} more; '--output csv' lists all\n"
    assert printed.endswith(more) == (count > SHOWN)
