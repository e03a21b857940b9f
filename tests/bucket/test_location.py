"""Files and small tables in a bucket: as in a folder, or refused in a sentence."""

from __future__ import annotations

import json
import pickle
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.delta.log_archive import (
    ARCHIVE,
    LOG,
    archive_packs,
    archived,
    checkpoint_file,
    from_on,
    single,
)
from infra.delta.log_reader import (
    commit,
    commit_text,
    live_versions,
    newest_version,
    table_id,
    versions,
)
from infra.delta.parquet_writer import FileWriter, Target
from infra.delta.table_lock import require_locks_here
from infra.delta.time_travel import bring_back
from infra.errors import Fatal, Retryable, Usage
from infra.kafka.client import free_port
from infra.maintenance.backup import backup
from infra.maintenance.restore import restore
from infra.storage import paths as place
from infra.storage.paths import Location, location
from infra.streaming import log_retention
from infra.streaming.log_retention import archive_commits
from tests.bucket.store import SECRET, Store, serve

FUTURE = 4e9
PACK = 50


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Location:
    """A place to keep something, of both kinds."""
    name = request.node.name.replace("[", "-").replace("]", "")
    return location(f"s3://plant/{name}") if request.param == "bucket" else tmp_path / "kept"


def write(root: Location, **files: str) -> None:
    place.make(root)
    for name, said in files.items():
        (root / name).write_text(said)


def told(root: Location) -> dict[str, str]:
    return {place.below(root, file): file.read_text() for file in place.tree(root)}


def test_files_are_listed_moved_and_deleted_alike(root: Location) -> None:
    assert place.list_folder(root) == []
    assert not place.there(root)
    write(root, a1="one", a2="two", b="three")
    assert sorted(file.name for file in place.list_folder(root)) == ["a1", "a2", "b"]
    assert sorted(file.name for file in place.beginning(root, "a")) == ["a1", "a2"]
    assert place.file_sizes(root, "2") == {"a2": 3}
    assert list(place.texts([root / "b", root / "a1"])) == ["three", "one"]
    place.move([(root / "a1", root / "c1"), (root / "a2", root / "c2")])
    place.delete([root / "b", root / "never"])
    assert told(root) == {"c1": "one", "c2": "two"}
    assert place.there(root)


def test_what_another_process_writes_is_seen_at_once(store: Store) -> None:
    root = location("s3://plant/fresh")
    write(root, one="1")
    assert [file.name for file in place.list_folder(root)] == ["one"]
    write(pickle.loads(pickle.dumps(root)), two="2")
    assert sorted(file.name for file in place.list_folder(root)) == ["one", "two"]


def test_what_comes_after_a_name_is_told_with_its_time(store: Store) -> None:
    log = location("s3://plant/since") / LOG
    for version in range(7):
        single(log, version).write_text("{}")
    (log / "5" / "below.json").write_text("{}")
    found = place.since(log, single(log, 4).name)
    assert [name for name, _ in found] == [single(log, version).name for version in (4, 5, 6)]
    assert all(abs(at - time.time()) < 60 for _, at in found)
    assert place.since(log, single(log, 7).name) == []
    assert place.since(location("s3://plant/nowhere"), "0") == []


def test_a_file_of_rows_is_there_once_it_is_closed_or_not_at_all(root: Location) -> None:
    schema = pa.schema([pa.field("n", pa.int64())])
    place.make(root)
    target = Target("silver.number", root, "batch-", schema, ("n",))
    writer = FileWriter(target)
    writer.write(pa.RecordBatch.from_pydict({"n": [1, 2, 3]}, schema=schema))
    made = writer.close()
    assert made is not None
    read = pq.ParquetFile(place.to_read(root / made.name)).read()
    assert read["n"].to_pylist() == [1, 2, 3]
    assert place.file_sizes(root, ".parquet") == {made.name: made.size}
    unwanted = FileWriter(target)
    unwanted.write(pa.RecordBatch.from_pydict({"n": [4]}, schema=schema))
    unwanted._flush()
    unwanted.discard()
    assert list(place.file_sizes(root, ".parquet")) == [made.name]


def log_of(table: Location, number: int) -> None:
    """A table's log of so many commits."""
    place.make(table / LOG)
    for version in range(number):
        actions = [
            {"commitInfo": {"userMetadata": str(version)}},
            {"add": {"path": f"{version}.parquet", "stats": "{}"}},
        ]
        single(table / LOG, version).write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.full
def test_a_log_is_shortened_archived_and_brought_back(
    root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_retention, "PACK", PACK)
    table = root / "silver" / "number"
    log_of(table, PACK + 20)
    metadata = {"metaData": {"id": "t-1", "schemaString": "{}"}}
    listed = pa.Table.from_pylist([metadata])
    with pa.BufferOutputStream() as held:
        pq.write_table(listed, held)
    checkpoint_file(table / LOG, PACK + 10).write_bytes(held.getvalue().to_pybytes())
    assert table_id(table) == "t-1"
    written = [commit_text(table, version) for version in (0, 7, PACK + 5)]
    assert archive_commits(table, PACK + 15, FUTURE) == PACK + 10
    assert live_versions(table) == list(range(PACK + 10, PACK + 20))
    assert [(first, last) for first, last, _ in archive_packs(table)] == [(0, PACK - 1)]
    assert archived(table) == list(range(PACK + 10))
    assert versions(table, PACK - 2) == list(range(PACK - 2, PACK + 20))
    assert [commit_text(table, version) for version in (0, 7, PACK + 5)] == written
    assert commit(table, 7).adds == ("7.parquet",)
    assert newest_version(table) == PACK + 19
    assert bring_back(table, PACK + 5) == 5
    assert live_versions(table)[0] == PACK + 5
    assert archive_commits(table, PACK + 15, FUTURE) == 5
    assert live_versions(table)[0] == PACK + 10
    assert len(place.list_folder(table / ARCHIVE)) == 11


def test_commits_from_one_on_are_told_with_when_they_were_written(root: Location) -> None:
    log_of(root, 5)
    checkpoint_file(root / LOG, 4).write_bytes(b"beside them")
    found = from_on(root / LOG, 3)
    assert [version for version, _ in found] == [3, 4]
    assert all(abs(at - time.time()) < 60 for _, at in found)
    assert from_on(root / LOG, 3) == found
    assert from_on(root / LOG, 5) == from_on(root / "nowhere", 0) == []


def bucket(home: Path, prefix: str) -> Settings:
    return load(home=home, lake=f"s3://plant/{prefix}")


def test_a_lake_has_one_home(store: Store, tmp_path: Path) -> None:
    first, other = bucket(tmp_path / "one", "homes"), bucket(tmp_path / "two", "homes")
    require_locks_here(first)
    require_locks_here(first)
    with pytest.raises(Fatal, match=r"keep their locks in .*/one of host"):
        require_locks_here(other)
    place.delete([first.lake_root / "_home"])
    require_locks_here(other)
    with pytest.raises(Fatal, match=r"keep their locks in .*/two of host"):
        require_locks_here(first)


def test_a_backup_comes_back_into_another_bucket(store: Store, tmp_path: Path) -> None:
    kept = bucket(tmp_path / "home", "kept")
    write(kept.lake_root / "silver" / "event", **{"a.parquet": "rows"})
    write(kept.lake_side / "_rules", pack="{}")
    write(kept.checkpoint_root / "ingest" / "batches", **{"3.json": '{"topic_ids": {}}'})
    made = backup(kept, tmp_path / "backups")
    again = bucket(tmp_path / "other", "again")
    assert restore(again, made) == 3
    assert told(again.lake_root) == {"silver/event/a.parquet": "rows"}
    assert told(again.home) == {
        "lake/_rules/pack": "{}",
        "checkpoints/ingest/batches/3.json": ('{"topic_ids": {}}'),
    }
    with pytest.raises(Usage, match="something is there; restore onto an empty home"):
        restore(bucket(tmp_path / "third", "again"), made)
    folder = load(home=tmp_path / "fourth")
    assert restore(folder, made) == 3
    assert told(folder.lake_root) == {"silver/event/a.parquet": "rows", "_rules/pack": "{}"}


@pytest.fixture
def made(store: Store, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A backup of a lake in a bucket."""
    kept = bucket(tmp_path / "home", request.node.name)
    write(kept.lake_root / "silver" / "event", **{"a.parquet": "rows", "b.parquet": "more rows"})
    write(kept.lake_side / "_rules", pack="{}")
    write(kept.checkpoint_root / "ingest" / "batches", **{"3.json": '{"topic_ids": {}}'})
    return backup(kept, tmp_path / "backups")


def test_a_restore_into_a_bucket_that_fails_leaves_nothing(made: Path, tmp_path: Path) -> None:
    """One file changes after it was compared: it is compared again on its way."""
    again = bucket(tmp_path / "other", "failing")
    before: list[dict[str, str]] = []

    def meanwhile(done: int, total: int) -> None:
        assert not any("rows" in text for text in told(again.home).values()), "not by the home"
        if done == total - len("more rows"):  # what is left is the last file
            before.append(told(again.lake_root))
            (made / "lake/silver/event/b.parquet").write_text("less rows")

    with pytest.raises(Fatal, match=r"b\.parquet: is not what .*; nothing was restored"):
        restore(again, made, meanwhile)
    assert before == [{"silver/event/a.parquet": "rows"}]
    assert told(again.lake_root) == {}
    assert not again.home.exists()
    (made / "lake/silver/event/b.parquet").write_text("more rows")
    assert restore(again, made) == 4


def test_nothing_goes_into_a_bucket_from_a_backup_that_was_harmed(
    made: Path, tmp_path: Path
) -> None:
    (made / "checkpoints/ingest/batches/3.json").unlink()
    again = bucket(tmp_path / "other", "harmed")
    with pytest.raises(Fatal, match=r"3\.json: is missing in the backup; nothing was restored"):
        restore(again, made)
    assert told(again.lake_root) == {}
    assert not again.home.exists()


def test_what_stays_in_a_bucket_is_named(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes away on the way, and nothing can be deleted there either."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    (tmp_path / "store").mkdir()
    with ExitStack() as running:
        own = running.enter_context(serve(tmp_path / "store"))
        for name, value in own.environment.items():
            monkeypatch.setenv(name, value)
        again = bucket(tmp_path / "other", "gone")

        def meanwhile(done: int, total: int) -> None:
            if done == total - len("more rows"):
                running.close()

        with pytest.raises(Fatal, match=r"not be taken back, delete it: s3://plant/gone$"):
            restore(again, made, meanwhile)
    assert not again.home.exists()


@pytest.mark.parametrize(
    ("lake", "said"),
    [
        ("s3://", "names no bucket; write s3://bucket/prefix"),
        ("hdfs://host/lake", "write a path, or s3://bucket/prefix"),
    ],
)
def test_an_address_that_is_none_is_refused(lake: str, said: str) -> None:
    with pytest.raises(Usage, match=said):
        load(lake=lake)


def test_a_store_that_lets_nobody_in_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(Fatal, match=r"there is no bucket 'elsewhere' at http://127\.0"):
        connect(location("s3://elsewhere/lake"))
    with pytest.raises(Fatal, match="s3://plant/nothing: there is no lake here"):
        connect(location("s3://plant/nothing"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(Fatal, match="no credentials were found: set AWS_ACCESS_KEY_ID") as told_so:
        place.store()
    assert SECRET not in str(told_so.value)


def test_a_store_that_does_not_answer_may_do_so_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(Retryable, match=r"s3://plant/away: the store at http://127\.0"):
        place.list_folder(location("s3://plant/away"))
