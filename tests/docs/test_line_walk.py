"""The page that walks a line through the code names what the line does run through.

What workers run is run here, by one line of each kind, and the files that it enters are noted in
the order in which it enters them. What the driver runs needs Spark and a broker: of it the files
are to import each other as the page has them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alerts.domain.entity import micros
from alerts.lifecycle.alert_job import Outputs
from alerts.lifecycle.stateful_operator import stepper
from alerts.matching.detection import detection
from alerts.rulepack.locations import store_folder
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import PackStore, Rule, RulePack
from alerts.tables import ALERT, FINDING
from enrich.dhcp.lease_rules import LeaseEvent, Segment
from enrich.dhcp.stateful_operator import LINE, _advancing
from enrich.dhcp.tracker_state import TrackerLimits
from enrich.tables import ATTRIBUTION
from infra.config.settings import Settings, load
from infra.delta.parquet_writer import Target, arrow_schema
from infra.delta.schema import Table
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Pass, Reach, Stage
from ingest.tables import EVENT, RECORD
from tests.alerts.lifecycle.test_alert_fold import finding, leased

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "a-line-from-kafka-to-the-alert.md"
MOST = 20

DRIVER = {
    "ingest/pipeline/ingest_job.py": ("ingest/pipeline/batch_pass.py",),
    "infra/streaming/lake.py": ("infra/delta/parquet_writer.py",),
    "enrich/dhcp/sessions_job.py": ("enrich/dhcp/stateful_operator.py", "infra/streaming/lake.py"),
    "enrich/attribution/stream_join.py": (),
    "alerts/lifecycle/alert_job.py": (
        "enrich/attribution/stream_join.py",
        "alerts/lifecycle/stateful_operator.py",
        "alerts/delivery/publisher.py",
        "infra/streaming/lake.py",
    ),
    "alerts/delivery/publisher.py": (),
}
"""Files of the walk that the driver runs, and what of the walk each hands the line to."""

WRITER = "infra/delta/parquet_writer.py"
"""Each table's rows pass it, bronze before the parser; its place in the walk is the last's."""

SET_UP = ("detection", "meter_of", "columns", "_at_once")
"""Called before the line is there, or to ask whether it is one of many that are read at once."""

SSHD = b"<86>1 2026-11-20T12:00:01Z b1 sshd 811 - - Failed password for root from 10.0.0.9 port 47"
DHCP = b"<30>1 2026-11-20T12:00:01Z d1 dhcpd 9 - - DHCPACK on 10.0.0.9 to 02:00:00:00:00:07 via e0"
RULE = Rule(
    id="r",
    title="Guessing",
    level="high",
    predicate=Test("user.name", "eq", "root"),
    alerting=True,
)


def walk(heading: str) -> list[str]:
    """The files the page names under a heading, in order; "1 to 5 above": of the one before."""
    section = PAGE.read_text("utf-8").partition(f"**{heading}**")[2].partition("\n**")[0]
    files: list[str] = []
    for number, name, begin, end in re.findall(
        r"^(\d+)\. `([^`]+)`|(\d+) to (\d+) above", section, re.MULTILINE
    ):
        assert not number or int(number) == len(files) + 1
        files += [name] if name else walk("One line of sshd")[int(begin) - 1 : int(end)]
    return files


@pytest.mark.parametrize("heading", ["One line of sshd", "One line of DHCP"])
def test_a_walk_names_at_most_twenty_files_and_enters_no_folder_twice(heading: str) -> None:
    files = walk(heading)
    assert 10 < len(files) <= MOST
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert len(set(files)) == len(files)
    folders = [str(Path(name).parent) for name in files]
    visits = [folder for folder, _ in groupby(folders)]
    assert len(set(visits)) == len(visits), visits


def test_the_driver_hands_a_line_on_as_the_walks_say() -> None:
    for name, others in DRIVER.items():
        tree = ast.parse((ROOT / name).read_text("utf-8"))
        modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        for other in others:
            assert other.removesuffix(".py").replace("/", ".") in modules, (name, other)


def test_a_line_of_sshd_enters_the_files_that_are_named_in_that_order(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    pack = PackStore(store_folder(settings)).put(RulePack(rules=(RULE,)))
    worked(settings, pack, "sshd", SSHD)  # what is made once for many lines is no part of the walk
    with entered() as files:
        worked(settings, pack, "sshd", SSHD)
    compare(walk("One line of sshd"), files)


def test_a_line_of_dhcp_enters_the_files_that_are_named_in_that_order(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    pack = PackStore(store_folder(settings)).put(RulePack(rules=(RULE,)))
    tracked(settings, pack)
    with entered() as files:
        tracked(settings, pack)
    compare(walk("One line of DHCP"), files)


def compare(named: list[str], files: list[str]) -> None:
    """`named`: by the page; `files`: as entered, helpers among them."""
    assert set(named) - set(files) <= set(DRIVER)
    ordered = [name for name in files if name in named and name != WRITER]
    assert ordered == [name for name in named if name in ordered]


@contextmanager
def entered() -> Iterator[list[str]]:
    """Our files whose functions were called while inside, in the order of their first call."""
    files: dict[str, None] = {}
    ours = ("infra/", "ingest/", "enrich/", "alerts/")

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(str(ROOT)):
            return
        name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if name.startswith(ours) and frame.f_code.co_name not in SET_UP:
            files.setdefault(name)

    result: list[str] = []
    sys.setprofile(note)
    try:
        yield result
    finally:
        sys.setprofile(None)
        result += files


def worked(settings: Settings, pack: str, source: str, raw: bytes) -> None:
    """A line through the workers of jobs `ingest` and `alert`."""
    (row,) = passed(settings, pack, source, raw, FINDING)
    folded(settings, finding(0, leased("aa"), pack=pack, event_uid=row["event_uid"]))


def tracked(settings: Settings, pack: str) -> None:
    """A DHCP line through the workers of `ingest` and `sessions`, and what it revises through
    those of `alert`."""
    (event,) = passed(settings, pack, "isc_dhcpd", DHCP, EVENT)
    time = micros(event["time"])
    line = LeaseEvent(
        event_uid=event["event_uid"],
        scope="default",
        ip=event["src_ip"],
        mac=event["mac"],
        hostname=None,
        activity=event["activity_id"],
        time_us=time,
        received_us=time,
        lease_seconds=3600,
        server="d1",
    )
    frame = pd.DataFrame([{name: getattr(line, name) for name in LINE} | {"beat": False}])
    step = _advancing(TrackerLimits(late_us=600_000_000, max_lease_us=86_400_000_000))
    (segments,) = step((0,), iter([frame]), State())
    assert set(Segment.__struct_fields__) == set(segments.columns)
    folded(settings, finding(0, leased("aa"), pack=pack))


def passed(
    settings: Settings, pack: str, source: str, raw: bytes, table: Table
) -> list[dict[str, Any]]:
    """The rows of a table that a pass over one record writes."""
    record = {
        "record_id": "t:0:1",
        "source": source,
        "mode": "live",
        "received_at": datetime(2026, 11, 20, 12, 0, 2, tzinfo=UTC),
        "raw": raw,
    }
    batch = pa.RecordBatch.from_pylist([record], schema=arrow_schema(RECORD))
    stage = Stage(FINDING, partial(detection, str(store_folder(settings)), pack, ""))
    files = Pass(ParseSettings(), targets(settings, RECORD, EVENT, FINDING), (stage,), Reach())
    return rows(settings, table, files(iter([batch])))


def folded(settings: Settings, row: dict[str, Any]) -> None:
    """A finding through the fold into the tables."""
    held = ("holder", "attr_rev", "via")
    plain = {name: row[name] for name in row if name not in (*held, "row_kind", "target")}
    frame = pd.DataFrame(
        {
            "kind": "finding",
            "target": "r",
            "payload": [msgspec.json.encode(plain).decode()],
            "attribution": [msgspec.json.encode({name: row[name] for name in held}).decode()],
            "now": pd.Timestamp("2025-03-01T12:00:05"),
        }
    )
    step: Callable[..., Iterator[pd.DataFrame]] = stepper(settings, str(store_folder(settings)))
    (frame,) = step((1,), iter([frame]), State())
    batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
    written = Outputs(targets(settings, ALERT, ATTRIBUTION), 0, 1)(iter([batch]))
    assert len(rows(settings, ALERT, written)) == 1


class State:
    """The state of a bucket that had none."""

    exists = False

    def update(self, value: tuple[bytes]) -> None:
        assert value


def targets(settings: Settings, *tables: Table) -> dict[str, Target]:
    return {table.name: Target.of(table, settings.home, f"{table.name}-") for table in tables}


def rows(
    settings: Settings, table: Table, written: Iterator[pa.RecordBatch]
) -> list[dict[str, Any]]:
    files = pa.Table.from_batches(written).to_pylist()
    (name,) = (file["name"] for file in files if file["table"] == table.name)
    table_rows: list[dict[str, Any]] = pq.read_table(settings.home / name).to_pylist()
    return table_rows
