"""Questions read from the files that the log names: the answers of Delta's extension."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import headgate.packages  # noqa: F401  makes the tables known
from api.services.console import event_search
from api.services.console.event_search import USUAL, EventFilter, EventQuestion
from api.services.reader import NewestFirst, Reader
from infra.config.settings import load
from infra.delta.duckdb_views import AskedViews
from infra.delta.parquet_writer import FileWriter, Target, arrow_schema
from infra.errors import Retryable
from ingest.tables import EVENT, HEARTBEAT

BEGAN = datetime(2026, 11, 20, tzinfo=UTC)
SEED = 5
BATCH = 12


class EventLake:
    """A lake with silver.event alone, its log written by hand."""

    def __init__(self, home: Path) -> None:
        self.settings = load(home=home)
        root = self.settings.lake_root
        assert isinstance(root, Path)
        self.folder = root / EVENT.path
        self.log = self.folder / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = 0
        self.number = 0
        self.commit(
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": "events",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": EVENT.schema.json(),
                    "partitionColumns": [],
                    "configuration": {},
                    "createdTime": int(time.time() * 1000),
                }
            },
        )

    def commit(self, *actions: dict[str, Any]) -> None:
        text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
        (self.log / f"{self.version:020d}.json").write_text(text)
        self.version += 1

    def add(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """A file of these events."""
        writer = FileWriter(Target.of(EVENT, self.folder, "t-"))
        writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(EVENT)))
        file = writer.close()
        assert file is not None
        action: dict[str, Any] = json.loads(file.action())
        return action

    def events(self, chance: random.Random, minute: int, count: int) -> list[dict[str, Any]]:
        """Events of about a minute, many of them of one second, as batches overlap."""
        rows = []
        for _ in range(count):
            self.number += 1
            moment = BEGAN + timedelta(seconds=minute * 60 + chance.randrange(-20, 80))
            source = chance.choice(["zeek:dns", "zeek:conn", "sshd"])
            rows.append(
                {
                    "event_uid": f"e-{self.number}",
                    "source": HEARTBEAT if chance.random() < 0.05 else source,
                    "dead_letter_reason": "torn" if chance.random() < 0.05 else None,
                    "time": moment,
                    "received_at": moment,
                    "src_ip": f"10.0.0.{chance.randrange(9)}",
                    "dst_ip": f"10.0.0.{chance.randrange(9)}",
                    "user_name": chance.choice([None, "ann", "Bob"]),
                    "class_uid": 4003,
                    "class_name": chance.choice(["DNS Activity", None]),
                    "message": chance.choice([None, "failed", "10.0.0.1 asked"]),
                    "query": {"hostname": f"h{chance.randrange(3)}.example"},
                    "src_endpoint": {"port": chance.randrange(50, 55)},
                }
            )
        return rows


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> EventLake:
    made = EventLake(tmp_path_factory.mktemp("near"))
    chance = random.Random(SEED)
    for minute in range(24):
        made.commit(made.add(made.events(chance, minute, BATCH)))
    merged = [made.add(made.events(chance, minute, BATCH)) for minute in (3, 4)]
    made.commit(*merged)
    # As compaction does: one file with the rows of all in their places, out of order.
    rows = [row for minute in range(6) for row in made.events(chance, minute, 5)]
    gone = [{"remove": {"path": each["add"]["path"], "dataChange": False}} for each in merged]
    made.commit(*gone, made.add(rows))
    return made


@pytest.fixture(scope="module")
def reader(lake: EventLake) -> Iterator[Reader]:
    reader = Reader(lake.settings)
    yield reader
    reader.close()


class Plain(Reader):
    """Reads whole tables through the extension, whatever it is told of times."""

    def rows(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        return super().rows(*args, **kwargs | {"within": None, "newest": None, "narrow": False})


@pytest.fixture(scope="module")
def plain(lake: EventLake) -> Iterator[Plain]:
    plain = Plain(lake.settings)
    yield plain
    plain.close()


QUESTIONS = [
    pytest.param("", (), marks=pytest.mark.full),
    ("10.0.0.1", ()),
    pytest.param("H1.example", (), marks=pytest.mark.full),
    ("ANN", ("source=zeek:dns", "src_port=53", "user_name!=bob")),
    pytest.param("nothing has this", ("message~FAILED",), marks=pytest.mark.full),
]


@pytest.mark.parametrize(("text", "filters"), QUESTIONS)
def test_pages_and_counts_are_those_of_the_whole_table(
    reader: Reader, plain: Plain, text: str, filters: tuple[str, ...]
) -> None:
    chosen = tuple(EventFilter.of(each) for each in filters)
    for first, last in ((0, 60), (2, 5)):
        since, until = BEGAN + timedelta(minutes=first), BEGAN + timedelta(minutes=last)
        asked = EventQuestion(since, until, text, chosen)
        cursor = None
        while True:
            ours = event_search.events(reader, asked, USUAL, 60, cursor)
            assert ours == event_search.events(plain, asked, USUAL, 60, cursor)
            cursor = ours[1]
            if cursor is None:
                break
        assert event_search.event_summary(reader, asked) == event_search.event_summary(plain, asked)


def test_the_newest_rows_are_found_in_the_newest_files(lake: EventLake, reader: Reader) -> None:
    span = ("time", BEGAN, BEGAN + timedelta(hours=1))

    def newest(limit: int) -> list[dict[str, Any]]:
        return reader.rows(
            "SELECT time, event_uid FROM silver.events"
            f" ORDER BY time DESC, event_uid LIMIT {limit}",
            needs=("silver.event", "silver.events"),
            within={"silver.event": span},
            newest=NewestFirst("silver.event", "time", limit),
        )

    whole = newest(10_000)
    assert newest(5) == whole[:5]
    oldest = [file for file in lake.folder.glob("*.parquet") if _is_old(file)]
    assert oldest
    hidden = [file.rename(file.with_suffix(".away")) for file in oldest]
    try:
        # It would fail, and so would the extension, if it opened one of these.
        assert newest(5) == whole[:5]
    finally:
        for file in hidden:
            file.rename(file.with_suffix(".parquet"))


def _is_old(file: Path) -> bool:
    """Whether it is a batch of the first minutes. The file merged of such is the newest commit."""
    times = pq.read_table(file, columns=["time"])["time"]
    newest: datetime = pc.max(times).as_py()
    return len(times) == BATCH and newest < BEGAN + timedelta(minutes=5)


def test_what_is_committed_meanwhile_is_there_at_once(tmp_path: Path) -> None:
    lake = EventLake(tmp_path)
    chance = random.Random(SEED)
    reader = Reader(lake.settings)
    asked = EventQuestion(BEGAN - timedelta(hours=1), BEGAN + timedelta(hours=1))
    counts = []
    for minute in range(3):
        rows = [row | {"source": "sshd", "dead_letter_reason": None}
                for row in lake.events(chance, minute, 4)]  # fmt: skip
        lake.commit(lake.add(rows))
        counts.append(sum(map(sum, event_search.event_summary(reader, asked).series.values())))
    reader.close()
    assert counts == [4, 8, 12]


def test_small_files_are_opened_once(tmp_path: Path) -> None:
    lake = EventLake(tmp_path)
    chance = random.Random(SEED)
    batches = [lake.add(lake.events(chance, minute, BATCH)) for minute in range(3)]
    for batch in batches:
        lake.commit(batch)
    reader = Reader(lake.settings)
    asked = EventQuestion(BEGAN - timedelta(hours=1), BEGAN + timedelta(hours=1), "10.0.0.1")
    shown = tuple(event_search.COLUMNS_OF_EVENTS)
    before = event_search.events(reader, asked, shown, 100, None)
    # All but the one that says which columns there are.
    for batch in batches[:2]:
        (lake.folder / batch["add"]["path"]).unlink()
    lake.commit(lake.add(lake.events(chance, 200, 1)))
    assert event_search.events(reader, asked, shown, 100, None) == before
    # Files that left the table take their rows with them.
    lake.commit(*({"remove": {"path": b["add"]["path"], "dataChange": True}} for b in batches[:2]))
    plain = Plain(lake.settings)
    assert event_search.events(reader, asked, shown, 100, None) == event_search.events(
        plain, asked, shown, 100, None
    )
    reader.close()
    plain.close()


def test_which_file_an_event_lies_in_is_told_by_the_files_of_its_time_alone(tmp_path: Path) -> None:
    lake, chance = EventLake(tmp_path), random.Random(SEED)
    far = lake.add(lake.events(chance, 6000, 5))
    lake.commit(far)
    for minute in (0, 10):
        lake.commit(lake.add(lake.events(chance, minute, 5)))
    hour = timedelta(hours=1)
    span = {"since": BEGAN - hour, "until": BEGAN + hour}
    params = span | {"uids": [f"e-{number}" for number in range(20)]}
    asked = (
        f"SELECT DISTINCT event_uid, filename FROM delta_scan('{lake.folder}')"
        " WHERE list_contains($uids, event_uid) AND time >= $since AND time <= $until ORDER BY 1"
    )
    within = {EVENT.name: ("time", *span.values())}
    reader, plain, needs = Reader(lake.settings), Plain(lake.settings), (EVENT.name,)

    def named(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return [(row["event_uid"], Path(row["filename"]).name) for row in rows]

    whole = named(plain.rows(asked, params, needs=needs))
    assert len(whole) == 10
    (lake.folder / far["add"]["path"]).unlink()
    with pytest.raises(Retryable):
        plain.rows(asked, params, needs=needs)
    assert named(reader.rows(asked, params, needs=needs, within=within)) == whole
    with AskedViews(lake.settings.lake_root) as views:
        assert named(views.rows(asked, params, within, needs=needs)) == whole
    reader.close()
    plain.close()
