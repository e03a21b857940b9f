"""gold.attribution keeps its declared key; its view has one row of each address of a finding."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.tables import VIEWS
from enrich.tables import ATTRIBUTION

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SAID = st.tuples(
    st.sampled_from(["f1", "f2"]),
    st.sampled_from(["src_endpoint", "device"]),
    st.integers(-1, 3),
    st.sampled_from(["join", "correction", "repair", "late", "heartbeat"]),
    st.integers(0, 5),
)


def test_both_jobs_that_may_say_it_of_one_segment_are_told_apart_by_the_key() -> None:
    assert ATTRIBUTION.key == ("finding_id", "role", "rev", "via")


@settings(max_examples=25, deadline=None)
@given(st.lists(SAID, max_size=12, unique_by=lambda said: said[:4]))
def test_whatever_was_said_by_whom_each_address_has_one_newest_statement(
    said: list[tuple[str, str, int, str, int]],
) -> None:
    (view,) = (view for view in VIEWS if view.name == "gold.attribution_current")
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA gold")
        connection.execute(
            "CREATE TABLE gold.attribution (finding_id TEXT, role TEXT, rev INT, via TEXT, "
            "attributed_at TIMESTAMPTZ)"
        )
        for finding, role, rev, via, second in said:
            row = [finding, role, rev, via, NOON + timedelta(seconds=second)]
            connection.execute("INSERT INTO gold.attribution VALUES (?, ?, ?, ?, ?)", row)
        rows = connection.execute(f"SELECT finding_id, role, rev FROM ({view.sql})").fetchall()
    newest: dict[tuple[str, str], int] = {}
    for finding, role, rev, via, _ in said:
        if via != "heartbeat":
            newest[finding, role] = max(rev, newest.get((finding, role), -1))
    assert {row[:2]: row[2] for row in rows} == newest
    assert len(rows) == len(newest)
