"""Rows that wait, as small files, for the one writer that folds them into a table.

A ledger row a batch would cost a commit a batch, and the API has no Spark: both
put a JSON file into `<home>/spool/<table>/`, and the driver folds what lies
there every few seconds, each file once, through any crash.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.process.os_user import acting_user


def put_row(folder: Path, name: str, row: Mapping[str, Any]) -> None:
    """Leave one row, whole or not at all; the same name again replaces it."""
    put_file(folder / f"{name}.json", row)


def put_file(file: Path, row: Mapping[str, Any]) -> None:
    """The same in a file of any name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # A rename within a folder is atomic: the flusher sees the whole row or none.
    temporary = file.with_name(f".{file.stem}.{os.getpid()}")
    temporary.write_text(json.dumps(row), "utf-8")
    temporary.replace(file)


def note_audit(
    spool: Path, act: str, target: str, detail: Mapping[str, Any], outcome: str = "ok"
) -> None:
    """Leave a row for ops.audit: what the person who runs this process did, or had done."""
    instant = datetime.now(UTC)
    put_row(
        spool / "audit",
        f"{act}-{instant:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex[:8]}",
        {
            "at": instant.isoformat(),
            "who": acting_user(),
            "act": act,
            "target": target,
            "detail": json.dumps(detail, ensure_ascii=False),
            "outcome": outcome,
        },
    )
