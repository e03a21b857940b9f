"""gold.alert as a batch leaves it, written by hand, and processes that publish and deliver it.

    python -m tests.faults.outbox HOME BOOTSTRAP        # publishes what is committed, until killed

The rows are few columns of the real table: those that the publisher reads.
Source of the form: the Delta transaction log protocol.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from alerts.delivery.publisher import Publisher
from infra.config.settings import Settings, load
from infra.errors import Retryable

SCHEMA = pa.schema(
    {
        "alert_id": pa.string(),
        "revision": pa.int32(),
        "activity": pa.string(),
        "body": pa.string(),
        "sequence": pa.int64(),
        "suppressed_by": pa.string(),
    }
)


@dataclass
class Outbox:
    """The table under `folder`; `wanted` is what must come to the topic, in order by alert."""

    folder: Path
    version: int = 0
    wanted: list[tuple[str, int]] = field(default_factory=list)
    silenced: list[tuple[str, int]] = field(default_factory=list)
    torn: dict[tuple[str, int], str] = field(default_factory=dict)
    """Revisions whose bodies are damaged, each with its file."""

    def make(self) -> Outbox:
        """Version 0, with no rows."""
        (self.folder / "_delta_log").mkdir(parents=True)
        told = {
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [],
            "configuration": {},
        }
        told |= {"id": str(uuid.uuid4()), "schemaString": json.dumps(_struct())}
        self._commit(
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": told}
        )
        return self

    def tear(self, *rows: tuple[str, int]) -> None:
        """One batch of `(alert, revision)` whose bodies are damaged: they are wanted."""
        name = f"alert-{uuid.uuid4()}.parquet"
        self.torn |= dict.fromkeys(rows, name)
        self._append(name, [(*row, False) for row in rows])

    def repair(self, alert: str, revision: int) -> None:
        """Put the file of a damaged one back from a backup, with what else was in it."""
        name = self.torn[alert, revision]
        mended = [row for row, file in self.torn.items() if file == name]
        self.torn = {row: file for row, file in self.torn.items() if file != name}
        rows = [self._row(*row, False) for row in mended]
        whole = self.folder / f".{name}"
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), whole)
        whole.rename(self.folder / name)

    def append(self, *rows: tuple[str, int, bool]) -> None:
        """One batch of `(alert, revision, silenced)`."""
        self._append(f"alert-{uuid.uuid4()}.parquet", rows)

    def _append(self, name: str, rows: Sequence[tuple[str, int, bool]]) -> None:
        self.version += 1
        table = pa.Table.from_pylist([self._row(*row) for row in rows], schema=SCHEMA)
        pq.write_table(table, self.folder / name)
        size = (self.folder / name).stat().st_size
        added = {"path": name, "size": size, "partitionValues": {}, "modificationTime": 0}
        self._commit({"add": added | {"dataChange": True}})
        for alert, revision, silent in rows:
            (self.silenced if silent else self.wanted).append((alert, revision))

    def back(self, version: int) -> None:
        """Be as a backup was that was taken at a version."""
        for later in range(version + 1, self.version + 1):
            (self.folder / "_delta_log" / f"{later:020d}.json").unlink()
        self.version = version

    def nothing(self) -> None:
        """A commit that adds no row, as maintenance makes."""
        self.version += 1
        self._commit({"commitInfo": {"operation": "OPTIMIZE"}})

    def _row(self, alert: str, revision: int, silent: bool) -> dict[str, Any]:
        rule = {"id": "r", "level": "high", "name": "a rule"}
        state = "closed" if revision % 5 == 0 else "new"
        body = {"alert_id": alert, "revision": revision, "rule": rule, "state": state}
        text = json.dumps(body | {"title": f"{alert} {revision}"})
        return {
            "alert_id": alert,
            "revision": revision,
            "activity": "create" if revision == 1 else "update",
            "body": text[:20] if (alert, revision) in self.torn else text,
            "sequence": self.version,
            "suppressed_by": "mute" if silent else None,
        }

    def _commit(self, *actions: dict[str, Any]) -> None:
        log = self.folder / "_delta_log"
        whole = log / ".commit"
        whole.write_text("".join(json.dumps(action) + "\n" for action in actions))
        whole.rename(log / f"{self.version:020d}.json")


def begun(settings: Settings) -> Outbox:
    """A new one of a platform whose publisher has looked at it, as job `alert` does before its
    first batch."""
    outbox = Outbox(settings.lake_root / "gold" / "alert").make()
    Publisher(settings).begin()
    return outbox


def _struct() -> dict[str, Any]:
    """The columns, in the words of Delta's log."""
    kinds = {pa.string(): "string", pa.int32(): "integer", pa.int64(): "long"}
    columns = [
        {"name": one.name, "type": kinds[one.type], "nullable": True, "metadata": {}}
        for one in SCHEMA
    ]
    return {"type": "struct", "fields": columns}


def publish(home: str, bootstrap: str) -> None:
    """Publish until killed, as job `alert` does after each batch."""
    publisher = Publisher(load(home=Path(home), kafka={"bootstrap": bootstrap}))
    while True:
        try:
            publisher.publish()
        except Retryable as error:
            print(error, flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    publish(*sys.argv[1:])
