"""Rows of all commands: read by programs as they are, harmless and fitting on terminals."""

from __future__ import annotations

import argparse
import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.process.table_output import OUTPUT_FORMS, add_output_option, fitted_widths, print_rows

HOSTILE = "\x1b[2J\x9b31m\u202eevil\u2066[bold]x\r\n"


def plain(shown: str) -> str:
    """Without the bold that headers have."""
    return shown.replace("\x1b[1m", "").replace("\x1b[0m", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(
    rows: list[dict[str, Any]], form: str, out: io.StringIO | None = None, **more: Any
) -> str:
    stream = io.StringIO() if out is None else out
    print_rows(rows, form, out=stream, **more)
    return stream.getvalue()


@pytest.mark.parametrize("form", OUTPUT_FORMS)
def test_what_outsiders_chose_steers_no_terminal(form: str, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = plain(printed([{"name": HOSTILE, "\x1b[5m": ["\x1b"]}], form, Terminal()))
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "[bold]x" in shown


def test_csv_for_a_program_keeps_each_character() -> None:
    (header, row) = csv.reader(io.StringIO(printed([{"name": HOSTILE}], "csv"), newline=""))
    assert (header, row) == (["name"], [HOSTILE])


def test_no_cell_of_csv_is_run_by_a_spreadsheet() -> None:
    rows = [{"c": "=HYPERLINK(1)"}, {"c": -5}]
    assert printed(rows, "csv").splitlines() == ["c", "'=HYPERLINK(1)", "-5"]


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.text(), max_size=3)
)


@given(st.lists(st.fixed_dictionaries({"a": VALUES, "b\u202e": VALUES}), max_size=4))
def test_json_gives_back_what_was_there(rows: list[dict[str, Any]]) -> None:
    whole = printed(rows, "json", columns=("a", "b\u202e"))
    assert json.loads(whole) == rows
    lines = printed(rows, "ndjson", columns=("a", "b\u202e")).split("\n")[:-1]
    assert [json.loads(line) for line in lines] == rows
    whole.encode("ascii", "backslashreplace").decode()
    assert whole[:-1].isprintable()


def test_times_are_written_alike_in_every_form() -> None:
    moment = datetime(2026, 11, 20, 14, 5, tzinfo=UTC)
    for form in OUTPUT_FORMS:
        assert "2026-11-20T14:05:00+00:00" in printed([{"seen": moment}], form)


def test_a_pipe_gets_one_line_a_row_whatever_their_width() -> None:
    rows = [{"text": "x" * 5_000, "count": number} for number in (7, 1_000)]
    header, first, second = printed(rows, "table").splitlines()
    assert header.split() == ["text", "count"]
    assert first.endswith("     7")
    assert second.endswith("  1000")


@given(st.integers(min_value=20, max_value=120), st.integers(min_value=1, max_value=16))
def test_a_table_fits_the_terminal_and_loses_nothing(width: int, columns: int) -> None:
    row = {f"c{number}": f"<{number}:" + "v" * 30 + ">" for number in range(columns)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("NO_COLOR", "1")
        shown = plain(printed([row], "table", Terminal()))
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count("v") == 30 * columns


def test_ids_and_numbers_stay_whole_while_there_is_room_to_fold_words(monkeypatch) -> None:
    rows = [{"id": "74d69d75-4463-4424-8147-a5dd7507ba11", "alerts": 12, "title": "one word " * 9}]
    monkeypatch.setenv("NO_COLOR", "1")
    for width, whole in ((120, True), (80, True), (60, False)):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = plain(printed(rows, "table", Terminal())).splitlines()
        assert max(map(len, lines)) <= width
        assert any(rows[0]["id"] in line for line in lines) == whole


@given(st.lists(st.integers(1, 90), min_size=1, max_size=12), st.integers(10, 200))
def test_columns_fill_the_width_that_is_there(lengths: list[int], width: int) -> None:
    names, cells = ["" for _ in lengths], [["v" * length for length in lengths]]
    widths = fitted_widths(names, cells, width)
    room = width - 2 * len(lengths)
    if sum(lengths) <= room:
        assert widths == lengths
    elif widths is not None:
        assert room - len(lengths) < sum(widths) <= room
        assert all(wide <= length for wide, length in zip(widths, lengths, strict=True))
        assert min(widths) >= min(10, *lengths)
    else:
        assert sum(min(length, 10) for length in lengths) > room


def test_a_table_is_brief_and_every_other_form_is_whole() -> None:
    rows = [{"name": "x", "id": 7, "more": True}]
    assert printed(rows, "table", brief=("name",)).split() == ["name", "x"]
    assert printed(rows, "wide", brief=("name",)).split()[:3] == ["name", "id", "more"]
    assert json.loads(printed(rows, "json", brief=("name",))) == rows
    assert printed(rows, "csv", brief=("name",)).splitlines() == ["name,id,more", "x,7,true"]


def test_a_terminal_has_colours_unless_it_says_no(monkeypatch) -> None:
    def shown() -> str:
        style = {"style": lambda row: "red"}
        return printed([{"a": "x"}], "table", Terminal(), **style)

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31m" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in shown()
    assert "\x1b" not in printed([{"a": "x"}], "table", style=lambda row: "red")


def test_nothing_is_nothing_but_csv_names_its_columns() -> None:
    assert printed([], "table", columns=("a", "b")) == ""
    assert printed([], "csv", columns=("a", "b")) == "a,b\n"
    assert printed([], "json", columns=("a", "b")) == "[]\n"
    assert printed([], "ndjson", columns=("a", "b")) == ""


def test_a_former_name_of_a_form_works_and_says_the_new_one(capsys) -> None:
    parser = argparse.ArgumentParser()
    add_output_option(parser)
    assert parser.parse_args([]).output == "table"
    assert parser.parse_args(["--output", "text"]).output == "table"
    assert capsys.readouterr().err == "headgate: --output text is called --output table now\n"
    with pytest.raises(SystemExit):
        parser.parse_args(["--output", "xml"])
    assert "invalid choice: 'xml'" in capsys.readouterr().err
