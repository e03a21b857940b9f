"""gold.finding and gold.preliminary_answer as batches leave them, and a process that tells them.

    python -m tests.faults.early_outbox HOME BOOTSTRAP        # until killed

Source of the form: the Delta transaction log protocol.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from alerts.preliminary.known_holders import KnownHolders
from alerts.preliminary.publisher import PreliminaryPublisher
from alerts.rulepack.rule_pack import PackStore
from alerts.tables import FINDING, PRELIMINARY_ANSWER
from infra.config.settings import Settings, load
from infra.delta.parquet_writer import arrow_schema
from infra.delta.schema import Table
from infra.errors import Retryable
from tests.alerts.lifecycle.test_alert_fold import finding


class ByHand:
    """A table whose commits are written without Spark."""

    def __init__(self, settings: Settings, table: Table) -> None:
        self._folder = settings.lake_root / table.path
        self._schema = arrow_schema(table)
        self.version = 0
        (self._folder / "_delta_log").mkdir(parents=True)
        told: dict[str, Any] = {"partitionColumns": [], "configuration": {}}
        told |= {"format": {"provider": "parquet", "options": {}}}
        told |= {"id": str(uuid.uuid4()), "schemaString": table.schema.json()}
        self._commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                     {"metaData": told})  # fmt: skip

    def append(self, job: str, *rows: dict[str, Any], batch: int | None = None) -> None:
        """One batch of a job."""
        self.version += 1
        names = set(self._schema.names)
        cut = [{name: value for name, value in row.items() if name in names} for row in rows]
        file = f"{job}-{uuid.uuid4()}.parquet"
        pq.write_table(pa.Table.from_pylist(cut, schema=self._schema), self._folder / file)
        info = {"operation": "WRITE", "userMetadata": json.dumps({"job": job, "batch": batch})}
        size = (self._folder / file).stat().st_size
        added = {"path": file, "size": size, "partitionValues": {}, "modificationTime": 0}
        added |= {"dataChange": True}
        self._commit({"commitInfo": info}, {"add": added})

    def back(self, version: int) -> None:
        """Be as a backup was that was taken at a version."""
        for later in range(version + 1, self.version + 1):
            (self._folder / "_delta_log" / f"{later:020d}.json").unlink()
        self.version = version

    def _commit(self, *actions: dict[str, Any]) -> None:
        whole = self._folder / "_delta_log" / ".commit"
        whole.write_text("".join(json.dumps(action) + "\n" for action in actions))
        whole.rename(self._folder / "_delta_log" / f"{self.version:020d}.json")


class Outboxes:
    """Both tables; `told` and `answered` are what must come to the topic, by finding."""

    def __init__(self, settings: Settings) -> None:
        self.findings = ByHand(settings, FINDING)
        self.answers = ByHand(settings, PRELIMINARY_ANSWER)
        self.told: list[str] = []
        self.answered: list[str] = []

    def find(self, *uids: str, job: str = "ingest", seconds: float | None = 120.0) -> None:
        """A batch of findings; `seconds`: until they must be answered, None: not told early."""
        now = datetime.now(UTC)
        by = None if seconds is None else now + timedelta(seconds=seconds)
        self.findings.append(job, *[early(uid, by) for uid in uids])
        if by is not None and job == "ingest":
            self.told += uids

    def answer(self, *uids: str) -> None:
        """A batch of answers."""
        self.answers.append("alert", *[answered(uid) for uid in uids])
        self.answered += uids


def early(uid: str, by: datetime | None) -> dict[str, Any]:
    """A finding as detection writes it: whose address it was is not known there."""
    return finding(0, uid=uid, answer_by=by) | {"holder": None}


def answered(uid: str) -> dict[str, Any]:
    """The answer to a finding's preliminary alert, as job `alert` writes it."""
    now = datetime.now(UTC)
    row = finding(0, uid=uid)
    own = {"alert_id": alert_id(uid), "finding_id": row["finding_id"], "rule_id": row["rule_id"]}
    what = {"answer": "confirmed", "revision": 1, "answer_by": now, "answered_at": now}
    return own | what


def alert_id(uid: str) -> str:
    from alerts.preliminary.answer import preliminary_id

    return preliminary_id(finding(0, uid=uid), "default")


def publisher(settings: Settings) -> PreliminaryPublisher:
    """One as job `ingest` has it."""
    packs = PackStore(settings.home / "packs")
    return PreliminaryPublisher(settings, packs, KnownHolders(settings))


def publish(home: str, bootstrap: str) -> None:
    """Tell until killed, as job `ingest` does after each batch."""
    kafka = {"bootstrap": bootstrap, **topics(Path(home).name)}
    teller = publisher(load(home=Path(home), kafka=kafka))
    teller.begin()
    while True:
        try:
            teller.publish()
        except Retryable as error:
            print(error, flush=True)
        time.sleep(0.02)


def topics(name: str) -> dict[str, str]:
    """Topics of a test's own on a broker that tests share."""
    return {"preliminary_topic": f"{name}.early", "progress_topic": f"{name}.progress"}


if __name__ == "__main__":
    publish(*sys.argv[1:])
