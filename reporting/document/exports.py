"""The figures of a report as JSON, and as CSV files in one archive."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from reporting.document.content import Column, Report, Row, Words
from reporting.document.text import csv_cell

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first instant a ZIP file can have: the same figures give the same bytes."""


def to_json(report: Report) -> str:
    """Head, sentences and every table, with the versions of the tables they rest on."""
    arrived = report.arrival
    document = {
        "schema": "urn:headgate:report:1",
        "report": report.name,
        "title": report.title,
        "subject": report.subject or None,
        "tenant": report.tenant,
        "since": report.interval.start,
        "until": report.interval.end,
        "zone": report.interval.zone,
        "made_at": report.made_at,
        "arrived_until": arrived.newest if arrived else None,
        "late_events": arrived.late if arrived else None,
        "tables": dict(arrived.versions) if arrived else {},
        "notes": list(arrived.sentences()) if arrived else [],
        "lead": list(report.lead),
        "figures": [
            {"name": tile.label, "value": tile.value, "before": tile.before, "unit": tile.kind}
            for tile in report.tiles
        ],
        "words": {
            section.title: [s for block in section.blocks if isinstance(block, Words)
                            for s in block.sentences]
            for section in report.sections
            if any(isinstance(block, Words) for block in section.blocks)
        },
        "data": {
            key: [{column.key: row.get(column.key) for column in columns} for row in rows]
            for key, (columns, rows) in report.data().items()
        },
    }  # fmt: skip
    return json.dumps(document, indent=1, ensure_ascii=False, default=_plain) + "\n"


def to_csv_zip(report: Report) -> bytes:
    """A ZIP file with one CSV file for each table and chart, named by its key."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as whole:
        for key, (columns, rows) in report.data().items():
            entry = zipfile.ZipInfo(f"{key}.csv", _EPOCH)
            whole.writestr(entry, csv_text(columns, rows), zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def csv_text(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Rows as CSV, their columns named by key."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in columns])
    writer.writerows([[csv_cell(row.get(column.key)) for column in columns] for row in rows])
    return out.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)
