"""Parsing as Spark calls it: Arrow batches of bronze.record in, of silver.event out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infra.config.tenants import scope_of
from infra.delta.schema import TENANT
from infra.process.gc_pause import no_collection
from ingest.decoding.decoding import straight
from ingest.parsing.arrow_columns import EVENT_ARROW, column
from ingest.parsing.event_rows import (
    dead_letter,
    event_rows,
    is_large,
    joined_records,
    rows_in_parts,
    rows_of_all,
)
from ingest.parsing.source import JoiningSource, ParseSettings, Record, sources
from ingest.parsing.timestamps import EPOCH

__all__ = ["EVENT_ARROW", "arrow_parser", "event_rows"]

_Batches = Iterator[pa.RecordBatch]

TOGETHER = 1_000
"""Records whose rows are held as dictionaries at once: ten times as many cost a third more each."""


def arrow_parser(settings: ParseSettings) -> Callable[[_Batches], _Batches]:
    """What `mapInArrow` takes: rows of bronze.record to rows of silver.event.

    Pickles by reference; parsers are looked up by name where it runs. A parser
    module that cannot be imported raises here, not in a worker.
    """
    # Nothing of a source goes into the pickle: msgspec's decoders do not pickle.
    sources()
    return partial(_parse, settings)


def _parse(settings: ParseSettings, batches: _Batches) -> _Batches:
    parser = Parser(settings)
    for batch in batches:
        yield from parser(batch)


class Parser:
    """Batches of bronze.record to batches of silver.event, one after the other."""

    def __init__(self, settings: ParseSettings) -> None:
        self._settings = settings

    def __call__(self, batch: pa.RecordBatch) -> _Batches:
        """The rows of all records, one or more for each; not in the records' order."""
        # Tenant by tenant: what is parsed together is one tenant's, so its events are too.
        if not _names_tenants(batch):
            for events in self._of_tenant(batch):
                yield _marked(events, self._settings)
            return
        for tenant, records in _by_value(batch, TENANT.name):
            settings = self._settings.of_tenant(tenant)
            for events in Parser(settings)._of_tenant(records):
                yield _marked(events, settings)

    def _of_tenant(self, batch: pa.RecordBatch) -> _Batches:
        left: list[pa.RecordBatch] = []
        joining: list[pa.RecordBatch] = []
        for name, records in _by_value(batch, "source"):
            source = sources().get(name or "")
            whole = source is not None and straight(records, self._settings)
            with no_collection():
                read = source.columns(records, self._settings) if source and whole else None
            if read is not None:
                if read.events is not None:
                    yield read.events
                if not read.left:
                    continue
                records = records.take(pa.array(read.left))
            (joining if isinstance(source, JoiningSource) else left).append(records)
        # Few of each source, and a batch of few rows costs as much as a larger one.
        if left:
            yield from self._one_by_one(_together(left), TOGETHER)
        # Lines that are parts of one event must be seen together.
        for records in joining:
            yield from self._one_by_one(records, records.num_rows)

    # For a reparse, which knows from silver which records were one event.
    def groups(self, groups: list[list[Record]]) -> list[pa.RecordBatch]:
        """The rows of records in groups; only what is in one group can be one event."""
        with no_collection():
            # Many live dictionaries make every pass of the collector long, and none of them is
            # garbage.
            by_tenant: dict[str | None, list[list[Record]]] = {}
            for group in groups:
                for part in joined_records(group, self._settings):
                    by_tenant.setdefault(part[0].tenant_uid, []).append(part)
            return [
                _marked(events, settings)
                for tenant, parts in by_tenant.items()
                for settings in (self._settings.of_tenant(tenant),)
                for events in _batches(parts, [rows_of_all(part, settings) for part in parts])
            ]

    def _one_by_one(self, records: pa.RecordBatch, together: int) -> _Batches:
        for start in range(0, records.num_rows, together):
            held = records_of(records.slice(start, together))
            # A file of many events on its own could fill the memory that `TOGETHER` bounds.
            large = [record for record in held if is_large(record)]
            if large:
                held = [record for record in held if not is_large(record)]
            with no_collection():
                parts = joined_records(held, self._settings)
                pieces = [rows_of_all(part, self._settings) for part in parts]
                made = list(_batches(parts, pieces)) if parts else []
                # The dictionaries must go before the batch is handed on, or both lie in memory
                # while Spark writes.
                del pieces
            yield from made
            for record in large:
                yield from self._large(record)

    def _large(self, record: Record) -> _Batches:
        for rows in rows_in_parts(record, self._settings):
            with no_collection():
                made = list(_batches([[record]], [rows]))
            yield from made


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _names_tenants(batch: pa.RecordBatch) -> bool:
    # A table of an earlier release has no such column, and most have nothing in it.
    place = batch.schema.get_field_index(TENANT.name)
    return place >= 0 and bool(batch.column(place).null_count < batch.num_rows)


def _by_value(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    # A micro-batch mixes all sources in one call, because each call of a worker costs by itself.
    encoded = batch.column(column).dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0], batch
        return
    for index, value in enumerate(values):
        yield value, batch.filter(pc.equal(encoded.indices, index))


def _marked(events: pa.RecordBatch, settings: ParseSettings) -> pa.RecordBatch:
    """The events as those of their records' tenant; without one, of the tenant of their account."""
    if settings.tenant is None:
        return _of_accounts(events, settings)
    place = events.schema.get_field_index(TENANT.name)
    field = events.schema.field(place)
    owner = pa.scalar(settings.tenant, field.type)
    return events.set_column(place, field, pa.repeat(owner, len(events)))


def _of_accounts(events: pa.RecordBatch, settings: ParseSettings) -> pa.RecordBatch:
    """The events, those of accounts that are a tenant's as that tenant's, scope included.

    What a record says of itself is believed, so it is asked of the sources alone that name accounts
    (`sources.NAME.accounts`): who may write there may write in any of these tenants' names.
    """
    if not settings.accounts or not events.num_rows:
        return events
    accounts = pc.struct_field(events.column("cloud"), ["account", "uid"])
    if accounts.null_count == len(accounts):
        return events
    sources_of = events.column("source").to_pylist()
    tenants_of = {name: settings.accounts_of(name) for name in set(sources_of)}
    owners = [
        None if account is None else tenants_of[source].get(account.lower())
        for source, account in zip(sources_of, accounts.to_pylist(), strict=True)
    ]
    if not any(owners):
        return events
    scopes = [
        site if owner is None or site is None else scope_of(site, owner)
        for owner, site in zip(owners, events.column("scope").to_pylist(), strict=True)
    ]
    return with_texts(with_texts(events, TENANT.name, owners), "scope", scopes)


def with_texts(batch: pa.RecordBatch, name: str, values: Iterable[str | None]) -> pa.RecordBatch:
    """The batch with other texts in one of its columns."""
    place = batch.schema.get_field_index(name)
    field = batch.schema.field(place)
    return batch.set_column(place, field, pa.array(values, field.type))


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """The records of a batch of bronze.record."""
    # Arrow would make a slow object of each time; many records of a batch share their microsecond.
    times = batch.column("received_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    headers = batch.column("headers")
    return list(
        map(
            Record,
            _plain(batch.column("record_id")),
            _plain(batch.column("source")),
            _plain(batch.column("mode")),
            map(_moment, times.to_numpy().tolist()),
            [raw or b"" for raw in _plain(batch.column("raw"))],
            # One empty dictionary for all: nearly no message of a live stream has headers.
            [{}] * batch.num_rows
            if headers.null_count == batch.num_rows
            else [_headers(each) for each in headers.to_pylist()],
            _plain(batch.column(TENANT.name)) if _names_tenants(batch) else [None] * batch.num_rows,
        )
    )


def _plain(array: pa.Array) -> list[Any]:
    # Quicker than `to_pylist`, which makes a scalar object of every value first.
    values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return values


@lru_cache(maxsize=4096)
def _moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def _headers(pairs: list[dict[str, Any]] | None) -> dict[str, bytes]:
    return {pair["key"]: pair["value"] for pair in pairs if pair["value"]} if pairs else {}


def _batches(parts: list[list[Record]], pieces: list[list[dict[str, Any]]]) -> _Batches:
    """The rows as Arrow. Where they do not fit its types, halved down to the event at fault."""
    try:
        yield to_arrow([row for piece in pieces for row in piece])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if len(parts) == 1:
            yield from _one_batch(parts[0], pieces[0], error)
            return
        # One value that fits no column must cost its own record, not the batch (say, a time of year
        # 1e300).
        half = len(parts) // 2
        yield from _batches(parts[:half], pieces[:half])
        yield from _batches(parts[half:], pieces[half:])


def _one_batch(records: list[Record], rows: list[dict[str, Any]], error: Exception) -> _Batches:
    """The rows of one event or record, those at fault replaced by a dead letter."""
    source = records[0].source
    reason = f"parser {source} made a row that fits no column: {error}"[:500]
    if len(rows) == 1:
        # The dead letter takes the place of the row, so the ids of its neighbours stay as they are.
        position = int(rows[0]["event_uid"].rpartition("#")[2])
        yield to_arrow([dead_letter(record, reason, position) for record in records])
        return
    for row in rows:
        try:
            yield to_arrow([row])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as why:
            yield from _one_batch(records, [row], why)


def to_arrow(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as one batch of `EVENT_ARROW`, rows with the same keys side by side.

    Raises where a value fits no column.
    """
    values = transposed(rows)
    unknown = values.keys() - set(EVENT_ARROW.names)
    if unknown:
        raise ValueError(f"no column {sorted(unknown)} in silver.event")
    columns = [
        column(values[field.name], field.type, field.name)
        if field.name in values
        else pa.nulls(len(rows), field.type)
        for field in EVENT_ARROW
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_ARROW)


def transposed(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Each key's values in all rows, None where a row lacks it; rows of the same keys together.

    Few sets of keys occur, and of those that share one the values stand in the same places.
    """
    shapes: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        shapes.setdefault(tuple(row), []).append(row)
    columns: dict[str, list[Any]] = {name: [] for shape in shapes for name in shape}
    for shape, alike in shapes.items():
        merged = dict(zip(shape, zip(*map(dict.values, alike), strict=True), strict=True))
        nothing = (None,) * len(alike)
        for name, values in columns.items():
            values.extend(merged.get(name, nothing))
    return columns
