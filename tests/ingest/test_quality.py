"""`headgate quality`: good rows pass, and each kind of bad row fails what it should."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from infra.errors import Usage
from infra.lake import Lake
from ingest import cli
from ingest.quality.found import Written, written
from ingest.quality.suites import ADDRESS
from ingest.quality.validate import Outcome, check
from ingest.tables import EVENT

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
GOOD = {
    "event_uid": "r0#0", "source": "sshd", "class_uid": 3002, "activity_id": 1, "type_uid": 300201,
    "type_uid_of_class": 300201, "src_ip": "10.0.0.1", "lag_seconds": 2.0,
}  # fmt: skip


def rows(*more: dict[str, Any], good: int = 200) -> pd.DataFrame:
    """Many good rows and `more`, each good but for what it names."""
    plain = [{**GOOD, "event_uid": f"r{number}#0"} for number in range(good)]
    return pd.DataFrame(
        plain + [{**GOOD, "event_uid": f"bad{n}#0", **row} for n, row in enumerate(more)]
    )


def shares(**dead: int) -> pd.DataFrame:
    """Sources with 100 rows each."""
    return pd.DataFrame(
        [
            {"source": name.replace("__", ":"), "rows": 100, "dead": n, "dead_share": n / 100}
            for name, n in dead.items()
        ],
        columns=["source", "rows", "dead", "dead_share"],
    )


def failed(frame: pd.DataFrame, sources: pd.DataFrame) -> dict[str, Outcome]:
    return {one.expectation: one for one in check(Written(frame, sources)) if not one.passed}


def test_good_rows_pass_every_expectation() -> None:
    v6, none = {"src_ip": "2001:db8::7"}, {"src_ip": None}
    outcomes = check(Written(rows(v6, none), shares(sshd=5, zeek__conn=0, zeek__made_up=0)))
    assert len(outcomes) == 13
    assert [one for one in outcomes if not one.passed or one.unexpected] == []
    assert {one.checked for one in outcomes} == {202, 201, 3, 0}


@pytest.mark.parametrize(
    ("bad", "said", "example"),
    [
        ({"event_uid": "r7#0"}, "event_uid is there once", "r7#0"),
        ({"event_uid": None}, "event_uid is there", ""),
        ({"class_uid": 9999, "type_uid_of_class": 300201}, "class_uid is a class we write", "9999"),
        ({"type_uid": 300299}, "type_uid is class_uid * 100 + activity_id", "300299"),
        ({"src_ip": "10.0.0.256"}, "src_ip is an address, where there is one", "10.0.0.256"),
        ({"src_ip": "localhost"}, "src_ip is an address, where there is one", "localhost"),
    ],
)
def test_a_bad_row_fails_its_own_expectation_alone(
    bad: dict[str, Any], said: str, example: str
) -> None:
    found = failed(rows(bad), shares(sshd=0))
    assert list(found) == [said]
    assert found[said].unexpected >= 1
    assert example in found[said].examples


def test_a_wrong_clock_is_borne_up_to_one_in_a_hundred() -> None:
    early, ahead = {"lag_seconds": 401 * 86400.0}, {"lag_seconds": -90000.0}
    assert failed(rows(early, ahead), shares(sshd=0)) == {}
    ((said, one),) = failed(rows(early, ahead, ahead), shares(sshd=0)).items()
    assert said.startswith("time lies from 400 days before arrival")
    assert one.unexpected == 3


def test_a_source_that_cannot_be_read_is_named() -> None:
    found = failed(rows(), shares(sshd=0, zeek__dns=6, no_such_source=100))
    assert sorted(found) == [
        "dead letters are at most 5% of each source",
        "source is one that can be read",
    ]
    assert found["source is one that can be read"].examples == (
        "no_such_source: 100 dead letters of 100"
    )
    told = found["dead letters are at most 5% of each source"].examples
    assert told == "no_such_source: 100 dead letters of 100, zeek:dns: 6 dead letters of 100"


def test_nothing_written_is_not_well() -> None:
    assert [one.passed for one in check(Written(rows(good=0), shares()))] == [False]


@pytest.mark.parametrize(
    ("text", "is_address"),
    [("0.0.0.0", True), ("255.249.19.9", True), ("::1", True), ("fe80::1:2", True),
     ("1.2.3", False), ("1.2.3.4.", False), ("1.2.3.4.5", False),
     ("FE80::1", False), ("a:b", False), ("", False)],
)  # fmt: skip
def test_what_looks_like_an_address(text: str, is_address: bool) -> None:
    assert bool(re.search(ADDRESS, text)) is is_address


def test_the_command_reads_the_table_and_its_exit_code_tells(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    beat = event("beat", 0) | {"source": "_heartbeat"}
    frame = lake.spark.createDataFrame(
        [event("a", 0), event("b", 1), event("b", 2), beat], EVENT.schema
    )
    frame.coalesce(1).write.format("delta").mode("append").save(lake.path(EVENT))

    found = written(lake.settings, AT, AT + timedelta(minutes=2))
    assert sorted(found.rows["event_uid"]) == ["a", "b"]
    assert set(found.rows["lag_seconds"]) == {2.0}

    assert run(lake, "--until", "2026-11-20T12:02:00Z") == 0
    assert capsys.readouterr().out.startswith("ok ")
    assert run(lake, "--output", "json") == 1
    told = {one["expectation"]: one["passed"] for one in json.loads(capsys.readouterr().out)}
    assert [name for name, passed in told.items() if not passed] == ["event_uid is there once"]
    assert run(lake, "--rows", "1") == 0
    assert "looked at the newest 1 of 3 rows" in capsys.readouterr().err
    with pytest.raises(Usage, match="--since noon: write an instant"):
        run(lake, "--since", "noon")


def event(uid: str, minutes: int) -> dict[str, Any]:
    at = AT + timedelta(minutes=minutes)
    return {
        "event_uid": uid, "record_ids": [uid], "source": "sshd", "mode": "live", "time": at,
        "received_at": at + timedelta(seconds=2), "activity_id": 1, "category_uid": 3,
        "class_uid": 3002, "class_name": "Authentication", "type_uid": 300201, "severity_id": 1,
        "src_ip": "10.0.0.1",
    }  # fmt: skip


def run(lake: Lake, *words: str) -> int:
    parser = argparse.ArgumentParser()
    cli.build(parser.add_subparsers())
    args = parser.parse_args(["quality", *words])
    code: int = args.run(args, lake.settings)
    return code


OFFLINE = """
import sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        print("asked for the network:", event, arguments[-1])
sys.addaudithook(refuse)
from tests.ingest.test_quality import rows, shares, check, Written
print(all(one.passed for one in check(Written(rows(), shares(sshd=0)))))
"""


def test_a_check_asks_nothing_of_a_network_and_shows_no_progress(tmp_path: Path) -> None:
    # A file: under `python -c` PySpark takes an import for a doctest of its own and ends at once.
    script = tmp_path / "offline.py"
    script.write_text(OFFLINE)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert done.stdout == "True\n"
    assert "Calculating" not in done.stderr
