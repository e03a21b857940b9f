"""A release that adds columns and inputs goes on with the tables and checkpoints there are."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from infra.checkpoint.offset_log import NO_PLACE, offset_lines, read_up_to
from infra.delta.column_types import ListOf
from infra.delta.duckdb_views import open_engine
from infra.delta.schema import Column, Table, struct
from infra.delta.schema_evolution import additions, schema_of
from infra.errors import Fatal
from infra.maintenance import maintenance
from infra.spark.internals import checkpoint_table
from infra.storage.checksums import Damaged
from infra.streaming.batch import Batch
from infra.streaming.checkpoint_sources import _extend, match, without_twins
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from infra.streaming.merge import merge

WHO = struct(mac=T.StringType())
MORE = struct(mac=T.StringType(), certainty=T.StringType())
OLD = Table(
    "silver.visit",
    "visits, as the release before declares them",
    (
        Column("n", T.LongType(), "a number"),
        Column("who", WHO, "who it was", False),
        Column("others", ListOf(WHO), "who else was there", False),
    ),
)
NEW = replace(
    OLD,
    columns=(
        Column("n", T.LongType(), "a number"),
        Column("site", T.StringType(), "where; the user's word", False),
        Column("who", MORE, "who it was", False),
        Column("others", ListOf(MORE), "who else was there", False),
    ),
)
SEEN = Table("gold.seen", "visits that a job saw", (Column("n", T.LongType(), "a number"),))
EXTRA = Table("silver.extra", "what it reads since", (Column("n", T.LongType(), "a number"),))


def seen(lake: Lake) -> list[int]:
    return sorted(row["n"] for row in lake.read(SEEN).collect())


def watch(lake: Lake, *tables: Table) -> Job:
    """A job that notes the numbers in some tables, which it reads in this order."""

    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows, SEEN, run)

    streams = [lake.stream(table).select("n") for table in tables]
    rows = streams[0]
    for other in streams[1:]:
        rows = rows.unionByName(other)
    return lake.each_batch("watch", rows, batch, trigger_seconds=None)


@pytest.mark.full
def test_a_table_that_was_read_twice_is_read_on_once(lake: Lake) -> None:
    lake.ensure(OLD, EXTRA, SEEN)
    lake.add(OLD, [{"n": 1}], "test")
    lake.add(EXTRA, [{"n": 10}], "test")
    watch(lake, OLD, EXTRA, OLD).wait()
    assert seen(lake) == [1, 1, 10]
    lake.add(OLD, [{"n": 2}], "test")
    lake.add(EXTRA, [{"n": 20}], "test")
    for _ in range(2):
        watch(lake, OLD, EXTRA).wait()
        assert seen(lake) == [1, 1, 2, 10, 20]


@pytest.mark.full
def test_a_batch_under_way_that_a_table_has_already_is_not_refused_and_not_written_twice(
    lake: Lake,
) -> None:
    lake.ensure(OLD, EXTRA, SEEN)
    lake.add(OLD, [{"n": 1}], "test")
    lake.add(EXTRA, [{"n": 10}], "test")
    watch(lake, OLD, EXTRA, OLD).wait()
    assert seen(lake) == [1, 1, 10]
    # As after a kill between the commit of the last table and Spark's own.
    not_done(lake)
    lake.add(OLD, [{"n": 2}], "test")
    for _ in range(2):
        watch(lake, OLD, EXTRA).wait()
        assert seen(lake) == [1, 1, 2, 10]


def test_twins_at_two_places_are_not_taken_for_one() -> None:
    a, b, later = (json.dumps({"reservoirId": name, "reservoirVersion": version, "index": -1})
                   for name, version in (("a", 1), ("b", 1), ("a", 2)))  # fmt: skip
    assert without_twins([a, b, a], ["a", "b"]) == [0, 1]
    assert without_twins([a, b, later], ["a", "b"]) is None
    assert without_twins([a, b], ["a"]) is None
    assert without_twins([a, b, a, a], ["a", "b", "a"]) is None


def test_a_table_gets_what_it_lacks_and_its_streams_go_on(lake: Lake) -> None:
    lake.ensure(OLD, SEEN)
    lake.add(OLD, [{"n": 1, "who": {"mac": "a"}, "others": [{"mac": "b"}]}], "test")
    watch(lake, OLD).wait()
    lake.add(OLD, [{"n": 2}], "test")  # not read yet when the release changes

    lake.ensure(NEW)
    assert additions(NEW, schema_of(lake.folder(NEW))) == ()
    both = {"mac": "c", "certainty": "certain"}
    lake.add(NEW, [{"n": 3, "site": "hq", "who": both, "others": [both]}], "test")
    watch(lake, NEW).wait()
    assert seen(lake) == [1, 2, 3]

    # A reader outside Spark sees old rows and new ones, and a doc came with the column.
    said = open_engine(memory="300MB", threads=1).execute(
        "SELECT n, site, who.certainty, others[1].mac, others[1].certainty "
        f"FROM delta_scan('{lake.path(NEW)}') ORDER BY n"
    )
    assert said.fetchall() == [
        (1, None, None, "b", None),
        (2, None, None, None, None),
        (3, "hq", "certain", "c", "certain"),
    ]
    assert schema_of(lake.folder(NEW))["site"].metadata == {"comment": "where; the user's word"}
    (audited,) = (lake.spool / "audit").glob("table.upgrade-*.json")
    row = json.loads(audited.read_text())
    assert (row["target"], row["outcome"]) == ("silver.visit", "ok")
    assert json.loads(row["detail"]) == {"added": "site, who.certainty, others.element.certainty"}

    # A second start finds nothing to do.
    version = lake.version(NEW)
    lake.ensure(NEW)
    assert lake.version(NEW) == version


@pytest.mark.full
def test_the_release_before_goes_on_with_the_newer_table(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.ensure(NEW, SEEN)
    certain = {"mac": "a", "certainty": "certain"}
    lake.add(NEW, [{"n": 1, "site": "hq", "who": certain}], "test")
    watch(lake, NEW).wait()
    lake.ensure(OLD)
    assert "silver.visit: has columns of a newer release, which stay: site" in (
        capsys.readouterr().err
    )
    assert lake.stream(OLD).columns == ["n", "who", "others"]
    lake.add(OLD, [{"n": 2}], "test")
    watch(lake, OLD).wait()
    assert seen(lake) == [1, 2]
    # Its maintenance writes anew what the newer release wrote, and keeps what it does not know.
    for n in range(3, 9):
        lake.add(OLD, [{"n": n, "who": {"mac": "c"}}], "test")
    assert maintenance.merge_small_files(lake, OLD) == (8, 1)
    found = {row["n"]: (row["site"], row["who"]) for row in lake.read(NEW).collect()}
    assert sorted(found) == list(range(1, 9))
    assert found[1] == ("hq", ("a", "certain"))
    assert found[3] == (None, ("c", None))


COUNTED = Table(
    "gold.counted",
    "what is counted, as the release before declares it",
    (Column("n", T.LongType(), "a number"), Column("at", T.TimestampType(), "when")),
    event_time="at",
    key=("n",),
)


@pytest.mark.full
def test_the_release_before_counts_on_in_the_newer_table(lake: Lake) -> None:
    """MERGE by names: what the newer release added becomes null where this one counts."""
    site = Column("site", T.StringType(), "where", False)
    newer = replace(COUNTED, columns=(*COUNTED.columns, site))
    at = datetime(2026, 11, 20, tzinfo=UTC)
    lake.ensure(newer, EXTRA)
    lake.add(newer, [{"n": n, "at": at, "site": f"s{n}"} for n in (1, 2)], "test")
    lake.add(EXTRA, [{"n": 1}, {"n": 3}], "test")

    def batch(rows: DataFrame, run: Batch) -> None:
        merge(lake, rows.withColumn("at", F.lit(at)).persist(), COUNTED, run)

    lake.each_batch("counts", lake.stream(EXTRA), batch, trigger_seconds=None).wait()
    found = {row["n"]: row["site"] for row in lake.read(newer).collect()}
    assert found == {1: None, 2: "s2", 3: None}


def test_what_was_killed_between_two_files_is_extended_once(tmp_path: Path) -> None:
    spark = tmp_path / "counts" / "spark"
    for name, count in (("offsets", 2), ("commits", 2)):
        (spark / name).mkdir(parents=True)
        for number in range(count):
            text = "\n".join(["v1", "{}", place("a"), place("b")])
            (spark / name / str(number)).write_text(text if name == "offsets" else "v1\n{}")
    (spark / "offsets" / "0").write_text("\n".join(["v1", "{}", place("a"), "-", place("b")]))
    (spark / "offsets" / ".1.crc").write_bytes(b"of another content")
    _extend("counts", spark, [0, 1], [0, None, 1])
    for number in (0, 1):
        assert offset_lines(spark / "offsets" / str(number)) == [place("a"), "-", place("b")]
    assert not (spark / "offsets" / ".1.crc").exists()
    assert [table for table, _ in read_up_to(spark / "offsets" / "1")] == ["a", "b"]
    (spark / "offsets" / "1").write_bytes(b"")
    with pytest.raises(Damaged, match=r"offsets/1 is damaged \(it is empty\)"):
        list(read_up_to(spark / "offsets" / "1"))


def test_another_type_is_refused_by_name(lake: Lake) -> None:
    lake.ensure(OLD)
    version = lake.version(OLD)
    other = replace(
        OLD,
        columns=(
            Column("n", T.StringType(), "a number"),
            Column("who", struct(mac=T.LongType()), "who it was", False),
            Column("more", T.StringType(), "what would be added", False),
        ),
    )
    with pytest.raises(Fatal) as refused:
        lake.ensure(other)
    assert str(refused.value) == (
        "silver.visit: was made with other types than this release writes: column n is bigint "
        "there, string here; column who.mac is string there, bigint here; go back to the release "
        "that made it, or start with an empty lake"
    )
    assert lake.version(OLD) == version


def test_the_schema_is_found_in_a_checkpoint_when_the_first_commits_are_gone(lake: Lake) -> None:
    lake.ensure(OLD)
    lake.spark.sql(f"ALTER TABLE delta.`{lake.path(OLD)}` SET TBLPROPERTIES (a = 'b')")
    log = lake.folder(OLD) / "_delta_log"
    # Delta's own way to one, as after every fiftieth commit.
    checkpoint_table(lake.spark, lake.path(OLD))
    for file in log.glob("*.json"):
        file.unlink()
    assert schema_of(lake.folder(OLD)) == OLD.schema


@pytest.mark.full
def test_an_input_more_begins_at_its_beginning_and_the_others_go_on(lake: Lake) -> None:
    lake.ensure(OLD, EXTRA, SEEN)
    lake.add(OLD, [{"n": 1}], "test")
    watch(lake, OLD).wait()
    lake.add(OLD, [{"n": 2}], "test")
    lake.add(EXTRA, [{"n": 10}], "test")
    watch(lake, EXTRA, OLD).wait()  # in front of the one there was
    assert seen(lake) == [1, 2, 10]
    lake.add(EXTRA, [{"n": 11}], "test")
    watch(lake, EXTRA, OLD).wait()
    assert seen(lake) == [1, 2, 10, 11]

    with pytest.raises(Fatal, match="in which it read 2 inputs, now it reads 1"):
        watch(lake, OLD)


@pytest.mark.full
def test_an_input_more_is_refused_while_a_batch_is_under_way(lake: Lake) -> None:
    lake.ensure(OLD, EXTRA, SEEN)
    lake.add(OLD, [{"n": 1}], "test")
    watch(lake, OLD).wait()
    newest = not_done(lake)
    before = _contents(lake.settings.checkpoint_root)
    with pytest.raises(
        Fatal, match=rf"batch {newest} was under way .*\(headgate run watch --once\)"
    ):
        watch(lake, OLD, EXTRA)
    assert _contents(lake.settings.checkpoint_root) == before


def not_done(lake: Lake) -> int:
    """Take back that Spark noted the newest batch of job `watch` as done; its number."""
    commits = lake.settings.checkpoint_root / "watch" / "spark" / "commits"
    newest = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in (commits / str(newest), commits / f".{newest}.crc"):
        file.unlink(missing_ok=True)
    return newest


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "lock"
    }


def place(table: str) -> str:
    return json.dumps({"sourceVersion": 1, "reservoirId": table, "reservoirVersion": 3})


@given(st.lists(st.sampled_from("abcdefgh"), unique=True), st.data())
def test_inputs_are_told_apart_by_their_tables(want: list[str], data: st.DataObject) -> None:
    kept = [data.draw(st.booleans()) for _ in want]
    read = [data.draw(st.booleans()) for _ in want]
    have = [
        place(table) if was else NO_PLACE
        for table, there, was in zip(want, kept, read, strict=True)
        if there
    ]
    found = match(have, want)
    assert found is not None
    known = {table: at for at, table in enumerate(t for t, k in zip(want, kept, strict=True) if k)}
    for table, at in zip(want, found, strict=True):
        if at is not None and have[at] != NO_PLACE:
            assert at == known[table]
    assert {at for at in found if at is not None} == set(range(len(have)))


def test_what_cannot_be_told_apart_is_not_guessed() -> None:
    assert match([place("a")], ["a", "a"]) is None
    assert match([place("a"), place("b")], ["b", "a"]) is None
    assert match([place("a")], []) is None
    assert match(['{"logs.sshd":{"0":3}}'], [None]) == [0]
