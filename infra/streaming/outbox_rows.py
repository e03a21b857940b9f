"""What waits in an outbox as rows of its table; what fits no table is set aside by name.

Apart from `outbox`, which every command imports to leave a row: this needs Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from infra.process.log import say
from infra.storage.checksums import Damaged, json_object

_UNSOUND = (Damaged, PermissionError, ValueError, TypeError, AttributeError, pa.ArrowException)


def sound_rows(files: Sequence[Path], schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a round, typed. One that a power cut left empty, that is another account's or
    that fits no table must not hold up all that follow."""
    rows = []
    for file in files:
        try:
            row = _typed(json_object(file.read_text("utf-8", "replace")), schema)
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
