"""A text of a statement stops nobody: it is refused from its tokens, or read where it can end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from api.sql import runner
from api.sql.runner import Limit, Refused, Statements
from api.sql.text_bounds import require_bounded
from api.sql.translation import translated
from api.sql.worker_line import Cancelled
from api.sql.worker_process import Program
from infra.errors import Usage
from infra.streaming.lake import Lake

BOMBS = {
    "struct": "SELECT " + "struct(" * 26 + "1" + ")" * 26,
    "decimal": "SELECT " + "decimal(" * 26 + "1" + ")" * 26,
    "joins": "SELECT * FROM silver.event" + " JOIN silver.event" * 40,
    "divisions": "SELECT 1" + "/1" * 2400,
    "pipes": "SELECT 1" + " |> SELECT *" * 3000,
    "brackets": "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "cases": "SELECT " + "CASE WHEN " * 3000 + "1" + " THEN 1 END" * 3000,
    "parts": "SELECT " + "1," * 40_000 + "1",
}

SOUND = (
    "SELECT CAST(1 AS DECIMAL(10, 2))",
    "SELECT a.x FROM silver.event a JOIN silver.event b ON a.x = b.x JOIN silver.event c ON 1 = 1",
    "SELECT 1 FROM silver.event a" + " CROSS JOIN silver.event b" * 12,
    "SELECT 1" + "/1" * 100,
    "SELECT " + "(" * 40 + "1" + ")" * 40,
    "SELECT 1 WHERE " + " OR ".join(f"src_ip = '192.0.2.{n}'" for n in range(250)),
)


@pytest.fixture(scope="module")
def statements(day: Lake) -> Iterator[Statements]:
    running = Statements(day.settings)
    yield running
    running.close()


@pytest.mark.parametrize("name", BOMBS)
def test_a_text_that_would_never_be_read_is_refused(name: str) -> None:
    with pytest.raises(Usage):
        translated(BOMBS[name], frozenset({"silver.event"}), {}, 10)


@pytest.mark.parametrize("sql", SOUND)
def test_what_people_write_is_within_the_bounds(sql: str) -> None:
    require_bounded(sql)


PIECES = ("struct(", "map(", "array(", "decimal(", "(", "a[", "CASE WHEN ", " JOIN silver.event ",
          "1/", "NOT ", "- ", "interval ", "f(x -> ", "cast(1 as array<", "|> ", ")", "1",
          " END ")  # fmt: skip


@given(
    pattern=st.lists(st.sampled_from(PIECES), min_size=1, max_size=4), times=st.integers(1, 1500)
)
def test_the_bounds_are_told_from_tokens_alone(pattern: list[str], times: int) -> None:
    """The parser is never asked, so no text of any depth takes more than its length."""
    parse = sqlglot.parse
    sqlglot.parse = None  # type: ignore[assignment]  # would be called by nothing here
    try:
        require_bounded("SELECT " + "".join(pattern) * times)
    except Usage:
        pass
    finally:
        sqlglot.parse = parse


def test_a_text_that_no_bound_foresaw_ends_with_its_reader(
    day: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Read in a worker that never comes back, in place of one for an unknown weak spot."""
    (tmp_path / "stuck.py").write_text(
        "import sys, time\n"
        "import api.sql.worker as worker\n"
        "worker.translated = lambda *asked: time.sleep(600)\n"
        "worker.serve(sys.stdin, sys.stdout)\n"
    )
    stuck = Program((str(tmp_path / "stuck.py"),), starting=30.0, reading=0.5)
    monkeypatch.setattr(runner, "DUCKDB", stuck)
    running = Statements(day.settings)
    try:
        with pytest.raises(Refused, match=r"could not be read in 0\.5 s"):
            running.run("SELECT 1")
        assert running.processes == []
    finally:
        running.close()


LONG = (
    "WITH d AS (SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4), "
    "e AS (SELECT a.x FROM d a, d b, d c, d f, d g, d h, d i) "
    "SELECT count(*) FROM e a, e b, e c WHERE a.x + b.x * c.x = -1"
)


def test_a_caller_who_hangs_up_ends_the_statement(statements: Statements) -> None:
    gone = threading.Event()
    threading.Timer(0.5, gone.set).start()
    with pytest.raises(Cancelled, match="hung up"):
        statements.run(LONG, cancelled=gone)
    assert statements.run("SELECT 1").rows == [[1]]


def test_closing_ends_what_runs_and_starts_nothing_again(day: Lake) -> None:
    running = Statements(day.settings)
    threading.Timer(1.5, running.close).start()
    with pytest.raises((Cancelled, Limit)):
        running.run(LONG)
    running.close()
    with pytest.raises(Cancelled, match="the API ends"):
        running.run("SELECT 1")
    assert running.processes == []


def test_workers_that_do_not_come_back_are_seen(
    statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert statements.blocked == []
    monkeypatch.setattr(runner, "_BLOCKED_SECONDS", -sys.maxsize)
    assert len(statements.blocked) == runner.WORKERS


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT hypot(1, 2)", "function hypot"),
        ("SELECT session_user", "function session_user"),
        ("SELECT `from_json`('x', 'y')", "function from_json"),
        ("SELECT date_format(time, 'y') FROM silver.event", "function date_format"),
        ("SELECT element_at(array(1), 1)", "function (element_at|array)"),
        ("SELECT str_to_map('a')", "function str_to_map"),
        ("SELECT `user` FROM silver.event", "no column user"),
    ],
)
def test_refusals_name_what_was_typed(sql: str, named: str) -> None:
    with pytest.raises(Usage, match=named):
        translated(sql, frozenset({"silver.event"}), {}, 10)
