"""`%%headgate` in a real IPython shell: shown, bound to a name, wrong lines named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from headgate.notebook_magic import cell_words, run_cell
from headgate.result import QueryResult
from infra.errors import Usage


class Lake:
    """Answers every statement with itself: what reaches a lake is what is looked at."""

    def sql(self, text: str, *, engine: str, as_of: str | None) -> QueryResult:
        """One row of what was asked."""
        return QueryResult(pa.table({"text": [text], "engine": [engine], "as_of": [as_of]}))


def test_a_cell_is_asked_and_bound_to_its_name() -> None:
    shell = InteractiveShell.instance()
    shell.extension_manager.load_extension("headgate")
    shell.user_ns["hg"] = Lake()
    done = shell.run_cell("%%headgate busy --as-of 2026-11-20T14:00:00Z\nSELECT 1\n")
    assert done.success
    assert shell.user_ns["busy"].rows() == [
        {"text": "SELECT 1", "engine": "duckdb", "as_of": "2026-11-20T14:00:00Z"}
    ]
    assert "SELECT 1" in done.result._repr_html_()


@pytest.mark.parametrize(
    ("line", "hg", "words"),
    [
        ("--engine oracle", Lake(), "invalid choice"),
        ("a b", Lake(), "unrecognized arguments"),
        ("not-a-name", Lake(), "is no name of a variable"),
        ("", 7, "is no open lake"),
    ],
)
def test_a_wrong_line_is_a_sentence(line: str, hg: Any, words: str) -> None:
    with pytest.raises(Usage, match=words):
        run_cell(line, "SELECT 1", {"hg": hg})


def test_tables_and_the_columns_of_those_named_are_completed() -> None:
    shell = InteractiveShell.instance()
    shell.extension_manager.load_extension("headgate")
    cell = "%%headgate busy\nSELECT time FROM silver.event WHERE dead_l"
    with provisionalcompleter():
        words = [word.text for word in shell.Completer.completions(cell, len(cell))]
    assert "dead_letter_reason" in words
    assert cell_words("%%headgate\nSELECT * FROM silver.ev", "silver.ev") == [
        "silver.event", "silver.events",
    ]  # fmt: skip
    assert "src_ip" in cell_words("%%headgate\nSELECT src FROM silver.events", "src")
    assert "src_ip" not in cell_words("%%headgate\nSELECT src FROM ops.audit", "src")
    assert cell_words("silver.ev", "silver.ev") == [], "other cells are left alone"
