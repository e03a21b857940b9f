"""The recorded lines that the bench varies are process starts to the parser, as those recorded."""

from __future__ import annotations

from bench.recorded_mix import NOON, SOURCE, recorded_lines
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record


def test_every_varied_line_is_a_process_start_that_tells_of_another_process() -> None:
    lines = list(recorded_lines(200))
    records = [Record(f"r{n}", SOURCE, "live", NOON, line) for n, line in enumerate(lines)]
    rows = list(event_rows(records, ParseSettings()))
    assert len(rows) == len(lines)
    assert {(row["class_uid"], row["activity_id"]) for row in rows} == {(1007, 1)}
    assert not any(row.get("dead_letter_reason") for row in rows)
    assert len({row["host_name"] for row in rows}) == 200
    # Recorded are two dozen; half of the varied ones run another program.
    assert len({row["process"]["path"] for row in rows}) > 24
    assert all(row["process"]["path"] in line.decode().replace("\\\\", "\\")
               for row, line in zip(rows, lines, strict=True))  # fmt: skip
    assert list(recorded_lines(200)) == lines
