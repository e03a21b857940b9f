"""Whose a record is where its events tell: several customers' logs may come in on one topic."""

from __future__ import annotations

import pyarrow as pa

from infra.delta.schema import TENANT
from ingest.parsing.arrow_parser import with_texts
from ingest.parsing.source import ParseSettings


class RecordOwners:
    """Whose records are, as their events tell: those of which each event is one tenant's."""

    def __init__(self, settings: ParseSettings) -> None:
        self._asked = bool(settings.accounts)
        self._owners: dict[str, set[str | None]] = {}

    def note(self, events: pa.RecordBatch) -> None:
        """Learn of the events of some records, parsed."""
        if not self._asked:
            return
        ids = events.column("record_ids").to_pylist()
        for record_ids, owner in zip(ids, events.column(TENANT.name).to_pylist(), strict=True):
            for record_id in record_ids:
                self._owners.setdefault(record_id, set()).add(owner)

    def named(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records as rows of bronze.record; what is of several stays nobody's."""
        if not any(owners != {None} for owners in self._owners.values()):
            return records
        given = records.column(TENANT.name).to_pylist()
        ids = records.column("record_id").to_pylist()
        return with_texts(
            records,
            TENANT.name,
            [
                owner if owner is not None else self._only(record_id)
                for record_id, owner in zip(ids, given, strict=True)
            ],
        )

    def _only(self, record_id: str) -> str | None:
        owners = self._owners.get(record_id, set())
        return next(iter(owners)) if len(owners) == 1 else None
