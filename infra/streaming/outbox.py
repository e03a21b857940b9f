"""Rows that wait, as small files, for the one writer that folds them into a table.

A ledger row a batch would cost a commit a batch, and the API has no Spark: both
put a JSON file into `<home>/spool/<table>/`, and the driver folds what lies
there every few seconds, each file once, through any crash.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from infra.process.log import say
from infra.process.os_user import acting_user
from infra.storage.checksums import Damaged, parsed

if TYPE_CHECKING:
    pass


def put_row(folder: Path, name: str, row: Mapping[str, Any]) -> None:
    """Leave one row, whole or not at all; the same name again replaces it."""
    folder.mkdir(parents=True, exist_ok=True)
    # A rename within a folder is atomic: the flusher sees the whole row or none.
    temporary = folder / f".{name}.{os.getpid()}"
    temporary.write_text(json.dumps(row), "utf-8")
    temporary.replace(folder / f"{name}.json")


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


_UNSOUND = (Damaged, PermissionError, ValueError, TypeError, AttributeError, pa.ArrowException)


def sound_rows(files: Sequence[Path], schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a round, typed. One that a power cut left empty, that is another account's or
    that fits no table must not hold up all that follow."""
    rows = []
    for file in files:
        try:
            row = _typed(parsed(file.read_text("utf-8", "replace")), schema)
            # Made only to see whether it fits: one row that does not would fail the whole round.
            pa.RecordBatch.from_pylist([row], schema)
            rows.append(row)
        except _UNSOUND as error:
            # Outside of the round, whose folder is deleted once its rows are in.
            aside = file.parent.parent / "damaged" / file.name
            aside.parent.mkdir(exist_ok=True)
            file.replace(aside)
            why = str(error).partition("\n")[0][:200]
            say(f"spool: {aside} is damaged ({why}) and was set aside; its row is in no table")
    return rows


def _typed(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """A row as it was left, with its times as times and its maps as pairs."""
    return {field.name: _value(row.get(field.name), field.type) for field in schema}


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_map(kind):
        return [(_plain(key), _plain(item)) for key, item in value.items()]
    return _plain(value)


def _plain(value: Any) -> Any:
    """A text that tables can hold: half a surrogate, which JSON may name, as its escape."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode()
    return value
