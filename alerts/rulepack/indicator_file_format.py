"""A compiled list of indicators: an Arrow IPC file, sorted by key, that workers map into memory.

Workers of one machine share its pages. It is named by the hash of its content and never
rewritten, so a pack that names it means the same entries for good.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alerts.rulepack.indicator_keys import (
    SALTS,
    Keys,
    Places,
    address_words,
    network_keys,
    parent_keys,
    text_keys,
)
from alerts.rulepack.indicator_normalisation import address_bytes, network_around, prefix_of, sought
from infra.errors import Fatal

_SCHEMA = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("valid_until", pa.timestamp("us", "UTC")),
    ]
)
_FEED_SCHEMA = pa.schema([*_SCHEMA, pa.field("score", pa.uint8()), pa.field("source", pa.string())])
_FORMATS = {b"1": _SCHEMA, b"2": _FEED_SCHEMA}
"""Versions of the file and of how keys are reckoned, with their columns; a reader refuses any
other. A list without scores and sources stays what it was, and so keeps its hash."""

_NEVER = datetime.min.replace(tzinfo=UTC)

FILTER_BITS = 32
"""Bits of the filter for each entry: of what is not listed, one in 32 is sought further."""


class IndicatorEntry(NamedTuple):
    """One indicator; it no longer counts at and after `valid_until` (UTC).

    `score`: 0 to 100, how sure its feed is; `source`: the feed, and its id there.
    """

    kind: str
    value: str
    label: str | None = None
    valid_until: datetime | None = None
    score: int | None = None
    source: str | None = None

    def counts(self, at: datetime | None) -> bool:
        """Whether it is still meant at an instant; without one it is."""
        return self.valid_until is None or at is None or at < self.valid_until


def write_indicators(folder: Path, entries: Iterable[IndicatorEntry]) -> str:
    """Write a list and return its hash. Of entries that say the same the one that counts longest
    is kept, of those the one with the highest score."""
    best: dict[tuple[str, str], IndicatorEntry] = {}
    for entry in entries:
        other = best.setdefault((entry.kind, entry.value), entry)
        if other is not entry and _rank(entry) > _rank(other):
            best[entry.kind, entry.value] = entry
    # In a fixed order, so that the same entries give the same file and the same hash.
    kept = sorted(best.values(), key=lambda entry: (entry.kind, entry.value))
    keys = _entry_keys(kept)
    # Sorted by key for binary search; stable, since keys of different texts may be equal.
    order = np.argsort(keys, kind="stable")
    rows = [kept[n] for n in order]
    scored = any(entry.score is not None or entry.source is not None for entry in kept)
    form = b"2" if scored else b"1"
    schema = _FORMATS[form]
    columns = [pa.array(keys[order], pa.uint64())]
    columns += [
        pa.array([getattr(row, column.name) for row in rows], column.type)
        for column in list(schema)[1:]
    ]
    prefixes = {prefix_of(entry.value)[1] for entry in kept if entry.kind in ("ip", "network")}
    lines = {b"format": form, b"prefixes": ",".join(map(str, sorted(prefixes))).encode()}
    return _keep(folder, pa.RecordBatch.from_arrays(columns, schema=schema.with_metadata(lines)))


def _rank(entry: IndicatorEntry) -> tuple[bool, datetime, int]:
    end = entry.valid_until
    return end is None, end or _NEVER, -1 if entry.score is None else entry.score


def _entry_keys(entries: list[IndicatorEntry]) -> Keys:
    keys = np.zeros(len(entries), np.uint64)
    kinds = np.array([SALTS.get(entry.kind, 0) for entry in entries])
    for kind, salt in SALTS.items():
        flatnonzero = np.flatnonzero(kinds == salt)
        texts = pa.array([entries[n].value for n in flatnonzero], pa.string())
        keys[flatnonzero] = text_keys(texts, kind)
    flatnonzero = np.flatnonzero(kinds == 0)
    networks = [prefix_of(entries[n].value) for n in flatnonzero]
    words = address_words(b"".join(data for data, _ in networks))
    prefixes = np.array([prefix for _, prefix in networks], np.int64)
    for prefix in np.unique(prefixes).tolist():
        mine = prefixes == prefix
        keys[flatnonzero[mine]] = network_keys(words[mine], prefix)
    return keys


def _keep(folder: Path, batch: pa.RecordBatch) -> str:
    """Write under the hash of the content, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".list.")
    try:
        with os.fdopen(handle, "wb") as file:
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            file.flush()
            # On disk before it has its name: packs name it by hash and trust what is in it.
            os.fsync(file.fileno())
        with open(name, "rb") as file:
            list_hash = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        os.replace(name, folder / f"{list_hash}.arrow")
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return list_hash


@dataclass
class IndicatorList:
    """A list that is open for searching."""

    table: pa.Table
    prefixes: tuple[int, ...]

    @classmethod
    def open(cls, path: Path) -> IndicatorList:
        """Map the file; raises `Fatal` where it is missing, damaged or of another format."""
        try:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        except FileNotFoundError:
            raise Fatal(f"{path}: no such indicator list; load it again") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise Fatal(f"{path}: not an indicator list ({error}); load it again") from error
        metadata = table.schema.metadata or {}
        columns = _FORMATS.get(metadata.get(b"format", b""))
        if columns is None or not table.schema.equals(columns):
            raise Fatal(f"{path}: an indicator list of another format; load it again")
        prefixes = metadata[b"prefixes"].decode().split(",")
        return cls(
            table, tuple(sorted((int(prefix) for prefix in prefixes if prefix), reverse=True))
        )

    @cached_property
    def keys(self) -> Keys:
        """The sorted keys, as they lie in the file."""
        if not self.table.num_rows:
            return np.zeros(0, np.uint64)
        numpy: Keys = self.table.column("hash").chunk(0).to_numpy(zero_copy_only=True)
        return numpy

    @cached_property
    def _filter(self) -> tuple[Any, Any]:
        """(bits by the first bits of the keys, how far to shift a key): 4 MB for a million."""
        width = max(10, (len(self.keys) * FILTER_BITS).bit_length())
        shift = np.uint64(64 - width)
        marked = np.zeros(1 << width, bool)
        marked[(self.keys >> shift).astype(np.int64)] = True
        return np.packbits(marked, bitorder="little"), shift

    def having(self, keys: Keys) -> Places:
        """Places in `keys` whose key is that of an entry."""
        bits, shift = self._filter
        slots = (keys >> shift).astype(np.int64)
        # Most keys are of nothing that is listed; the filter spares them the binary search.
        maybe = np.flatnonzero(bits[slots >> 3] >> (slots & 7).astype(np.uint8) & 1)
        candidates = keys[maybe]
        if not len(candidates):
            return maybe
        # A key beyond the last one gets a place behind the end.
        minimum = np.minimum(np.searchsorted(self.keys, candidates), len(self.keys) - 1)
        hits: Places = maybe[self.keys[minimum] == candidates]
        return hits

    def entries(self, kind: str, text: str) -> tuple[IndicatorEntry, ...]:
        """The entries that a text in the one spelling meets, the most specific first."""
        if kind == "ip":
            data = address_bytes(text)
            if data is None:
                return ()
            words = address_words(data)
            wanted = [network_around(data, prefix) for prefix in self.prefixes]
            # Only prefixes that the list has: 128 lengths would be as many look-ups for each
            # address.
            keys = [network_keys(words, prefix) for prefix in self.prefixes]
            return tuple(self._same(np.concatenate(keys or [self.keys[:0]]), wanted, kind))
        if kind == "domain":
            parents, _ = parent_keys(pa.array([text], pa.string()))
            return tuple(self._same(parents, list(_suffixes(text)), kind))
        return tuple(self._same(text_keys(pa.array([text], pa.string()), kind), [text], kind))

    def _same(self, keys: Keys, wanted: list[str], kind: str) -> Iterator[IndicatorEntry]:
        kinds = ("ip", "network") if kind == "ip" else (kind,)
        for place in self.having(keys).tolist():
            first = int(np.searchsorted(self.keys, keys[place], "left"))
            last = int(np.searchsorted(self.keys, keys[place], "right"))
            for row in self.table.slice(first, last - first).to_pylist():
                row.pop("hash")
                # The key is only a hash; the value decides.
                if row["kind"] in kinds and row["value"] == wanted[place]:
                    yield IndicatorEntry(**row)


def _suffixes(name: str) -> Iterator[str]:
    """A name and its parents, the longest first."""
    yield name
    for place, sign in enumerate(name):
        if sign == ".":
            yield name[place + 1 :]


@lru_cache(maxsize=20_000)
def met(path: Path, kinds: tuple[str, ...], type_id: int, value: str) -> tuple[IndicatorEntry, ...]:
    """The entries of a list that an observable meets, whether they still count or not."""
    listed = open_indicators(path)
    return tuple(
        entry
        for kind, text in sought(type_id, value)
        if kind in kinds
        for entry in listed.entries(kind, text)
    )


@lru_cache(maxsize=8)
def open_indicators(path: Path) -> IndicatorList:
    """A list, opened once in a process."""
    return IndicatorList.open(path)
