"""The JSON of an alert: who had the address, and what it is about."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.domain.alert import Revised, evidence_of, new_alert
from alerts.domain.entity import Holder, entity_of
from alerts.domain.finding import SNIPPET_CHARS
from alerts.lifecycle.alert_json import _holder, alert_row, with_text
from alerts.matching.event_rows import event_batch
from alerts.matching.matcher import Matcher
from alerts.tables import ALERT
from infra.delta.parquet_writer import arrow_schema
from ingest.parsing.source import LIVE_MODES
from tests.ingest.logs import good
from tests.ingest.windows_forms import sysmon, xml

END = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("complete", "ended"),
    [
        (datetime(2026, 11, 20, 11), None),  # a time without a zone is one of UTC
        (datetime(2026, 11, 20, 11, tzinfo=UTC), None),
        (END, "expired"),
        (None, None),
    ],
)
def test_a_lease_that_still_runs_is_not_told_as_expired(
    complete: datetime | None, ended: str | None
) -> None:
    holder = Holder(status="leased", lease_end=END, complete_up_to=complete, ended="expired")
    assert _holder(holder, "10.0.0.1")["ended"] == ended


TRAVERSAL = json.dumps(
    {
        "ts": 1795718067.0, "uid": "C1", "id.orig_h": "198.51.100.1", "id.orig_p": 1,
        "id.resp_h": "10.9.1.1", "id.resp_p": 80, "method": "GET", "host": "www.example.com",
        "uri": "/a/../../etc/passwd", "status_code": 200, "user_agent": "curl",
    }
).encode()  # fmt: skip
TRANSFER = json.dumps(
    {
        "ts": 1795718067.0, "uid": "C1", "id.orig_h": "10.0.0.1", "id.orig_p": 1, "proto": "tcp",
        "id.resp_h": "10.9.1.1", "id.resp_p": 53, "query": "corp.example", "qtype_name": "AXFR",
    }
).encode()  # fmt: skip
SHADOWS = xml(
    sysmon(
        1,
        {
            "Image": "C:\\Windows\\System32\\vssadmin.exe",
            "CommandLine": "vssadmin delete shadows /all /quiet",
            "ProcessId": "55",
            "User": "CORP\\ann",
        },
    )
)


@pytest.mark.parametrize(
    ("source", "raw", "rule", "shown"),
    [
        ("zeek:http", TRAVERSAL, "Path traversal in an HTTP request",
         "http://www.example.com/a/../../etc/passwd"),
        ("zeek:dns", TRANSFER, "DNS zone transfer requested", "corp.example"),
        ("windows_xml", SHADOWS, "Shadow copies or recovery switched off",
         "vssadmin delete shadows /all /quiet"),
    ],
)  # fmt: skip
def test_text_and_sql_of_an_alert_show_the_url_command_line_or_query_that_made_it_fire(
    source: str, raw: bytes, rule: str, shown: str, bundled: Matcher
) -> None:
    findings = bundled.match(event_batch([good(source, raw)])).to_pylist()
    row = next(row for row in findings if row["rule_title"] == rule)
    row |= {"holder": None, "attr_rev": 1, "via": "join", "fields": dict(row["fields"])}
    alert = new_alert("alert", row, entity_of(row, None), None)
    alert.evidence = evidence_of(row)
    told = alert_row(Revised(alert, "create", "first"), None, "t", 0, {})
    written = pa.Table.from_pylist([with_text(told)], schema=arrow_schema(ALERT))
    assert shown in told["body"]["summary"]
    assert shown in told["body"]["evidence"][0]["snippet"]
    ((summary,),) = duckdb.sql("SELECT summary FROM written").fetchall()
    assert shown in summary
    assert written.num_rows == 1


@pytest.fixture(scope="module")
def bundled() -> Matcher:
    return Matcher(compile_rules([BUNDLED]).pack, LIVE_MODES)


@pytest.mark.parametrize("words", [1, 40, 4000])
def test_a_long_message_leaves_room_for_what_the_event_is_about(
    words: int, bundled: Matcher
) -> None:
    event = good("windows_xml", SHADOWS) | {"message": "Process Create:\n" + "word " * words}
    (row,) = bundled.match(event_batch([event])).to_pylist()
    assert row["snippet"].endswith("vssadmin delete shadows /all /quiet")
    assert len(row["snippet"]) <= SNIPPET_CHARS
    named = event | {"message": "ran vssadmin delete shadows /all /quiet"}
    (row,) = bundled.match(event_batch([named])).to_pylist()
    assert row["snippet"] == "ran vssadmin delete shadows /all /quiet"
