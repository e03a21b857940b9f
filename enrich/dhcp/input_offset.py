"""How far job `sessions` has read silver.event, from what its newest commit says.

Source of the form: `DeltaSourceOffset` of Delta Lake. All versions below `reservoirVersion` are
read, and of that version the files up to `index`, in the order of its commit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from enrich.dhcp.state_layout import INPUT, SESSIONS_JOB, layout_folder
from enrich.tables import DHCP_SEGMENT
from infra.delta.log_reader import newest_first, oldest_version
from infra.delta.ops_tables import LEDGER
from infra.errors import Fatal
from infra.streaming.lake import Lake
from ingest.tables import EVENT


@dataclass(frozen=True)
class Position:
    """The newest batch of the job, and the offset in silver.event at which it ended."""

    query: str
    batch: int
    offset: str

    @property
    def parts(self) -> dict[str, Any]:
        """The offset's fields."""
        decoded: dict[str, Any] = json.loads(self.offset)
        return decoded


def newest(lake: Lake) -> Position:
    """Where the job has come to, by the newest commit it made.

    Raises `Fatal` when it made none, or when nothing says what that one had read.
    """
    table = lake.folder(DHCP_SEGMENT)
    for commit in newest_first(table):
        marker = commit.marker
        # Repairs and maintenance commit to this table as well.
        if marker is not None and marker["job"] == SESSIONS_JOB:
            return Position(marker["query"], marker["batch"], _offset(lake, marker))
    if oldest_version(table) == 0:
        raise Fatal(
            f"{DHCP_SEGMENT.name} holds nothing of job {SESSIONS_JOB}: there is nothing to "
            "rebuild; start "
            f"the job (a leftover {layout_folder(lake.settings)} can be removed)"
        )
    oldest = oldest_version(table)
    raise Fatal(
        f"{DHCP_SEGMENT.name}: its log reaches back to version {oldest} only and shows "
        f"no batch of job {SESSIONS_JOB}; how far it has read {EVENT.name} is not known"
    )


def _offset(lake: Lake, marker: dict[str, Any]) -> str:
    """Commits say it; for those of releases that did not, the checkpoint or the ledger does."""
    if INPUT in marker:
        return str(marker[INPUT])
    place = f"spark/offsets/{marker['batch']}"
    own = layout_folder(lake.settings)
    # A rebuild leaves the checkpoint before it as `before-...`; the digest tells them apart.
    for file in (own / place, *own.glob(f"before-*/{place}")):
        text = file.read_bytes() if file.exists() else b""
        if hashlib.sha256(text).hexdigest()[:16] == marker["digest"]:
            return _last_line(text.decode("utf-8"))
    # The row may not have been folded into the table yet.
    waiting = lake.spool / "ledger" / f"{SESSIONS_JOB}-{marker['query']}-{marker['batch']}.json"
    if waiting.exists():
        return _last_line(json.loads(waiting.read_text("utf-8"))["offsets"])
    row = (
        lake.read(LEDGER)
        .where((F.col("job") == SESSIONS_JOB) & (F.col("query_id") == marker["query"]))
        .where((F.col("batch_id") == marker["batch"]) & F.col("offsets").isNotNull())
        .select("offsets")
        .first()
    )
    if row is None:
        raise Fatal(
            f"job {SESSIONS_JOB}: neither its commit, nor {own / place}, nor {LEDGER.name} says "
            "what batch "
            f"{marker['batch']} had read; restore the checkpoint from a backup"
        )
    return _last_line(row["offsets"])


def _last_line(text: str) -> str:
    return text.splitlines()[-1]


def events_until(lake: Lake, position: Position) -> DataFrame:
    """The rows of silver.event that the job has read.

    Raises `Fatal` when it had not yet read all that was there when it first started.
    """
    offset = position.parts
    version, index = int(offset["reservoirVersion"]), int(offset["index"])
    if offset.get("isStartingVersion"):
        raise Fatal(
            f"job {SESSIONS_JOB} had read only a part of what {EVENT.name} held when it first "
            "started; "
            f"its checkpoint cannot be made anew: remove {layout_folder(lake.settings)} and the "
            "folder "
            f"{lake.folder(DHCP_SEGMENT)}, and start the job from the beginning"
        )
    before = lake.read(EVENT, version - 1) if version else lake.read(EVENT).limit(0)
    files = lake.files_of(EVENT, version)[: index + 1] if index >= 0 else []
    if not files:
        return before
    part = lake.spark.read.schema(EVENT.schema).parquet(*map(str, files))
    return before.unionByName(part)
