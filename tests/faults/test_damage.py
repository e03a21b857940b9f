"""Damaged files of a checkpoint or of Delta's log: the job goes on whole, or refuses by name.

Never is a batch lost, doubled or state begun anew in silence. What a file may suffer: cut
short, emptied, one bit turned, taken away. The job under test remembers what it has seen, so
it has every kind of file that a real one has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from enrich.rollup.jobs import with_rocksdb
from infra.config.settings import Settings, load
from infra.delta.ops_tables import AUDIT, LEDGER
from infra.delta.schema import Column, Table
from infra.runtime.outbox_flusher import OutboxFlusher, flush_outbox
from infra.runtime.restart_policy import reason
from infra.spark.internals import forget_tables
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from infra.streaming.outbox import put_row
from tests.recovery import judge

NUMBER = Table("silver.number", "numbers that arrive", (Column("n", T.LongType(), "a number"),))
FIRST = Table("gold.first", "each number once", (Column("n", T.LongType(), "a number"),))
BATCHES = ((1, 2, 2), (3, 1), (4, 4, 3))
"""What has been worked off when the damage is done."""
LATER = (1, 2, 3, 4, 5)
"""What comes after it: only 5 is new."""


def first(lake: Lake) -> None:
    """Work off what is there: each number goes on when it comes for the first time."""

    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows, FIRST, run)

    numbers = lake.stream(NUMBER).dropDuplicates(["n"])
    lake.each_batch("first", numbers, batch, trigger_seconds=None).wait()


def cut(file: Path) -> None:
    """The second half never reached the disk."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    """Nothing of it did, as after a power cut."""
    file.write_bytes(b"")


def flip(file: Path) -> None:
    """One bit in the middle turned."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def unchecked_flip(file: Path) -> None:
    """The same, and no checksum tells."""
    flip(file)
    file.with_name(f".{file.name}.crc").unlink()


def renumbered(file: Path) -> None:
    """One bit of a number turned: what it says can still be read, and is wrong."""
    content = bytearray(file.read_bytes())
    at = next(i for i, byte in enumerate(content) if chr(byte).isdigit())
    content[at] ^= 1
    file.write_bytes(bytes(content))


def gone(file: Path) -> None:
    """Taken away."""
    file.unlink()


@dataclass(frozen=True)
class Damage:
    """The newest file of a pattern below the home, and what becomes of it.

    `says`: what the refusal has to name; None: the job must go on as if nothing had been.
    """

    pattern: str
    how: Callable[[Path], None]
    says: str | None

    def __str__(self) -> str:
        return f"{self.how.__name__} {self.pattern}"


SPARK = "checkpoints/first/spark"
OUT, IN = "lake/gold/first/_delta_log", "lake/silver/number/_delta_log"
HURT = (cut, empty, flip)
DAMAGES = tuple(
    Damage(pattern, how, says)
    for pattern, says, ways in (
        (f"{SPARK}/metadata", "spark/metadata", (cut, empty, gone)),
        (f"{SPARK}/offsets/[0-9]*", "offsets/2", (*HURT, unchecked_flip)),
        (f"{SPARK}/offsets/[0-9]*", "batch 2 was already worked on", (gone,)),
        (f"{SPARK}/commits/[0-9]*", "commits/2", HURT),
        (f"{SPARK}/state/0/0/[0-9]*.delta", ".delta", (*HURT, gone)),
        # Its batch is in the tables: taken away, it is worked on again and passed over.
        (f"{SPARK}/commits/[0-9]*", None, (gone,)),
        ("checkpoints/first/batches/[0-9]*.json", "batches/2.json", (cut, empty, renumbered)),
        (f"{OUT}/*[0-9].json", "gold/first/_delta_log", HURT),
        (f"{IN}/*[0-9].json", "silver/number/_delta_log", HURT),
    )
    for how in ways
)


STORED = tuple(
    # What RocksDB wrote since its snapshot, as jobs with many keys keep their state.
    Damage(f"{SPARK}/state/0/0/[0-9]*.changelog", how, ".changelog")
    for how in (*HURT, gone)
)


@pytest.fixture(scope="module")
def worked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home where some batches are through."""
    return work(spark, tmp_path_factory.mktemp("worked"))


@pytest.fixture(scope="module")
def stored(spark: SparkSession) -> SparkSession:
    """A session whose jobs keep their state in RocksDB, and make no snapshot of a few batches.

    With one, which Spark makes in the background, the file of changes before it is not read again.
    """
    own = with_rocksdb(spark)
    own.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", 100)
    return own


@pytest.fixture(scope="module")
def worked_stored(stored: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with its state in RocksDB."""
    return work(stored, tmp_path_factory.mktemp("stored"))


def work(spark: SparkSession, home: Path) -> Path:
    lake = Lake(spark, load(home=home)).ensure(NUMBER, FIRST)
    for numbers in BATCHES:
        arrive(lake, numbers)
        first(lake)
    assert judge.column(home / "lake/gold/first", "n") == [1, 2, 3, 4]
    return home


def arrive(lake: Lake, numbers: tuple[int, ...]) -> None:
    lake.add(NUMBER, [{"n": number} for number in numbers], "test")


@pytest.fixture
def found(worked: Path, spark: SparkSession, tmp_path: Path) -> Iterator[Settings]:
    """The same home as a new driver finds it: nothing of its log is remembered."""
    with taken(worked, spark, tmp_path) as settings:
        yield settings


@pytest.fixture
def found_stored(worked_stored: Path, spark: SparkSession, tmp_path: Path) -> Iterator[Settings]:
    """The same of the one with RocksDB."""
    with taken(worked_stored, spark, tmp_path) as settings:
        yield settings


@contextmanager
def taken(worked: Path, spark: SparkSession, tmp_path: Path) -> Iterator[Settings]:
    home = tmp_path / "home"
    worked.rename(home)  # offsets name the tables by their identity, the state by its place
    shutil.copytree(home, tmp_path / "kept")
    forget(spark)
    yield load(home=home)
    # Spark looks after RocksDB's files in the background, and may write into either folder anew.
    shutil.rmtree(home, ignore_errors=True)
    shutil.rmtree(worked, ignore_errors=True)
    (tmp_path / "kept").rename(worked)


def forget(spark: SparkSession) -> None:
    forget_tables(spark)


@pytest.mark.full
@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damage_is_survived_or_named(spark: SparkSession, found: Settings, damage: Damage) -> None:
    survived_or_named(spark, found, damage)


@pytest.mark.full
@pytest.mark.parametrize("damage", STORED, ids=str)
def test_damage_to_state_in_rocksdb_is_named(
    stored: SparkSession, found_stored: Settings, damage: Damage
) -> None:
    survived_or_named(stored, found_stored, damage)


def survived_or_named(spark: SparkSession, found: Settings, damage: Damage) -> None:
    file = max(found.home.glob(damage.pattern))
    whole = {
        one: one.read_bytes() for one in (file, file.with_name(f".{file.name}.crc")) if one.exists()
    }
    damage.how(file)
    lake = Lake(spark, found)
    arrived = False
    try:
        arrive(lake, LATER)
        arrived = True
        first(lake)
    except Exception as error:
        said = f"{type(error).__module__}.{type(error).__name__}: {error}"
        assert damage.says is not None, said
        assert damage.says in reason(said)
        for one, content in whole.items():
            one.write_bytes(content)
        forget(spark)
    else:
        assert damage.says is None, "it went on"
    if not arrived:
        arrive(lake, LATER)
    first(lake)
    assert judge.column(found.lake_root / "gold/first", "n") == [1, 2, 3, 4, 5]


@pytest.mark.full
def test_a_row_that_a_power_cut_emptied_is_set_aside_by_name(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = lake.spool / "ledger"
    for number in range(3):
        put_row(spool, f"row-{number}", {"job": "a", "query_id": "q", "batch_id": number})
    empty(spool / "row-1.json")
    assert flush_outbox(lake, LEDGER, spool) == 2
    assert judge.column(lake.folder(LEDGER), "batch_id") == [0, 2]
    assert f"{spool / 'damaged' / 'row-1.json'} is damaged" in capsys.readouterr().err
    assert flush_outbox(lake, LEDGER, spool) == 0


@pytest.mark.full
def test_a_row_that_fits_no_table_holds_up_no_other(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = lake.spool / "audit"
    asked = {"at": "2026-11-20T12:00:00Z", "who": "api", "act": "sql"}
    put_row(spool, "half", asked | {"detail": '{"x": "\ud800"}'})
    put_row(spool, "later", asked | {"at": "next week"})
    put_row(spool, "list", ["no row"])  # type: ignore[arg-type]
    put_row(spool, "whole", asked | {"detail": "{}"})
    assert flush_outbox(lake, AUDIT, spool) == 2
    assert judge.column(lake.folder(AUDIT), "detail") == ['{"x": "\\ud800"}', "{}"]
    said = capsys.readouterr().err
    assert all(f"{spool / 'damaged' / name}.json is damaged" in said for name in ("later", "list"))


def test_a_table_that_takes_no_rows_holds_up_no_other(lake: Lake) -> None:
    (lake.spool / "audit" / "no-file.json").mkdir(parents=True)
    put_row(lake.spool / "ledger", "row", {"job": "a", "query_id": "q", "batch_id": 7})
    folder = OutboxFlusher(lake, {"audit": AUDIT, "ledger": LEDGER})
    folder._fold()
    assert folder.failure is not None
    assert folder.failure.startswith("ops.audit: IsADirectoryError")
    assert judge.column(lake.folder(LEDGER), "batch_id") == [7]
