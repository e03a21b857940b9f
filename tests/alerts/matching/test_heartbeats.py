"""Ingest's heartbeats among events, as detection hands them on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from alerts.domain.finding import finding_schema
from alerts.matching.detection import heartbeats
from alerts.tables import HEARTBEAT
from ingest.parsing.arrow_columns import EVENT_ARROW
from ingest.tables import HEARTBEAT as EVENT_HEARTBEAT

THEN = datetime(2026, 11, 21, 4, tzinfo=UTC)


def event(uid: str, source: str | None) -> dict[str, Any]:
    return {"event_uid": uid, "source": source, "mode": "live", "time": THEN, "received_at": THEN}


@pytest.mark.parametrize("others", [["sshd", None], []])
def test_a_heartbeat_among_events_is_one_of_detection(others: list[str | None]) -> None:
    rows = [*(event("other", source) for source in others), event("beat", EVENT_HEARTBEAT)]
    (beat,) = heartbeats(pa.RecordBatch.from_pylist(rows, schema=EVENT_ARROW), "pack").to_pylist()
    assert {name: value for name, value in beat.items() if value is not None} == {
        "finding_id": "beat", "rule_id": HEARTBEAT, "event_time": THEN, "received_at": THEN,
        "mode": "live", "pack": "pack",
    }  # fmt: skip


@pytest.mark.parametrize("sources", [["sshd", None], []])
def test_events_without_one_give_no_row(sources: list[str | None]) -> None:
    rows = [event("other", source) for source in sources]
    beats = heartbeats(pa.RecordBatch.from_pylist(rows, schema=EVENT_ARROW), "pack")
    assert (beats.num_rows, beats.schema) == (0, finding_schema())
