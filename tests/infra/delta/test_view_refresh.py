"""Views of an engine that lives long have the columns that their tables have now."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import types as T

from infra.delta import view_refresh
from infra.delta.duckdb_views import Definition, open_engine
from infra.delta.log_archive import LOG, single
from infra.delta.plain_files import duck_type
from infra.delta.schema import Column, Table, struct
from infra.delta.view_refresh import Views
from tests.infra.by_hand import add, commit, define

WHO = struct(mac=T.StringType())
MORE = struct(mac=T.StringType(), certainty=T.StringType())
OLD = Table(
    "silver.visit",
    "visits, as the release before declares them",
    (Column("n", T.LongType(), "a number"), Column("who", WHO, "who it was", False)),
)
NEW = replace(
    OLD,
    columns=(
        Column("n", T.LongType(), "a number"),
        Column("who", MORE, "who it was", False),
        Column("site", T.StringType(), "where", False),
    ),
)
SITES = "SELECT n, site FROM silver.visits ORDER BY n"


@pytest.fixture
def visit(tmp_path: Path) -> Path:
    return tmp_path / "silver" / "visit"


@pytest.fixture
def views(visit: Path) -> Iterator[Views]:
    """As this release has them: a table and a view over it."""
    columns = tuple((column.name, duck_type(column.type)) for column in NEW.columns)
    table = Definition("silver.visit", "", str(visit), columns)
    view = Definition("silver.visits", "SELECT * FROM silver.visit WHERE n > 0", None)
    other = Definition("gold.other", "SELECT 1 AS one", None)
    with open_engine(memory="200MB", threads=1) as engine:
        yield Views(engine, [table, view, other])


def ask(views: Views, sql: str) -> list[tuple[object, ...]]:
    assert views.lacking(["silver.visits"]) == {}
    return views.engine.execute(sql).fetchall()


def test_a_column_that_was_added_since_is_there_with_the_next_question(
    views: Views, visit: Path
) -> None:
    define(visit, OLD)
    add(visit, OLD, [{"n": 1, "who": {"mac": "a"}}])
    assert ask(views, SITES) == [(1, None)]
    define(visit, NEW)
    add(visit, NEW, [{"n": 2, "who": {"mac": "b", "certainty": "certain"}, "site": "hq"}])
    assert ask(views, SITES) == [(1, None), (2, "hq")]
    inside = "SELECT who.certainty FROM silver.visits ORDER BY n"
    assert ask(views, inside) == [(None,), ("certain",)]


def test_a_table_made_since_is_there_with_the_next_question(views: Views, visit: Path) -> None:
    assert views.lacking(["gold.other"]) == {}
    assert views.lacking(["silver.visits"]) == {"silver.visits": "a table it rests on is missing"}
    define(visit, NEW)
    add(visit, NEW, [{"n": 1, "site": "hq"}])
    assert ask(views, SITES) == [(1, "hq")]
    shutil.rmtree(visit)
    assert "silver.visit" in views.lacking(["silver.visit", "gold.other"])


def test_a_question_reads_the_commits_since_the_last_and_lists_no_log(
    views: Views, visit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(visit, NEW)
    assert ask(views, SITES) == []

    def listed(log: Path) -> list[int]:
        raise AssertionError(f"{log} was listed")

    monkeypatch.setattr(view_refresh, "singles", listed)
    for n in range(1, 4):
        add(visit, NEW, [{"n": n, "site": "hq"}])
        assert len(ask(views, SITES)) == n
    define(visit, NEW)
    with pytest.raises(AssertionError, match="was listed"):
        ask(views, SITES)


@pytest.mark.parametrize("longer", [False, True])
def test_another_table_in_its_place_is_told_by_its_id(
    views: Views, visit: Path, longer: bool
) -> None:
    define(visit, OLD, "t-1")
    add(visit, OLD, [{"n": 1}])
    assert ask(views, SITES) == [(1, None)]
    assert views.identity("silver.visit") == "t-1"
    shutil.rmtree(visit)
    define(visit, NEW, "t-2")
    if longer:
        commit(visit)
        os.utime(single(visit / LOG, 1), (1, 1))
    assert ask(views, SITES) == []
    assert views.identity("silver.visit") == "t-2"
