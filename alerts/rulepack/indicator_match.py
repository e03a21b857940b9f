"""The test `listed`: whether an observable of an event stands in a list of indicators.

Its candidates are found for whole batches: each different observable is looked up once, by
key. A candidate is confirmed by comparing values, and by whether the entry still counted when
the event happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.rulepack.indicator_file_format import (
    IndicatorEntry,
    IndicatorList,
    met,
    open_indicators,
)
from alerts.rulepack.indicator_keys import (
    Places,
    address_words,
    ascii_only,
    network_keys,
    parent_keys,
    text_keys,
)
from alerts.rulepack.indicator_normalisation import OBSERVABLES, address_bytes, sought
from alerts.rulepack.locations import indicator_file
from infra.errors import Fatal

_FIELD = "observables"
"""The column that the test reads, besides `time`."""


class Hit(NamedTuple):
    """An observable and the entry that it met."""

    value: str
    entry: IndicatorEntry


@dataclass(frozen=True)
class Listed:
    """The test, with its list open: which kinds of `SOUGHT` may meet it."""

    path: Path
    kinds: tuple[str, ...]

    def __call__(
        self, observables: Iterable[Mapping[str, Any]] | None, at: datetime | None
    ) -> bool:
        """Whether an event with these observables, at that time, meets the list."""
        return self.hit(observables, at) is not None

    def hit(
        self, observables: Iterable[Mapping[str, Any]] | None, at: datetime | None
    ) -> Hit | None:
        """The first observable that meets an entry, and the most specific such entry."""
        for observable in observables or ():
            value, type_id = observable.get("value"), observable.get("type_id")
            if value and type_id in OBSERVABLES:
                for entry in met(self.path, self.kinds, type_id, value):
                    if entry.counts(at):
                        return Hit(value, entry)
        return None

    def rows(self, batch: pa.RecordBatch, rows: Places) -> Places:
        """Rows of the batch, of these, that may meet the list: none that does is missing."""
        every = batch.column(_FIELD)
        # `take` copies; when all rows are asked the column is read as it lies.
        taken = every if len(rows) == batch.num_rows else every.take(pa.array(rows))
        parents = pc.list_parent_indices(taken).to_numpy(zero_copy_only=False).astype(np.int64)
        inner = pc.list_flatten(taken)
        # Nulls become values that match nothing: numpy has no null for integers.
        types = pc.fill_null(pc.struct_field(inner, "type_id"), 0).to_numpy(zero_copy_only=False)
        values = pc.fill_null(pc.struct_field(inner, "value"), "")
        # An empty array first, since `concatenate` refuses an empty list.
        row_list = [parents[:0]]
        for type_id, kinds in OBSERVABLES.items():
            flatnonzero = np.flatnonzero(types == type_id)
            if len(flatnonzero) and set(kinds) & set(self.kinds):
                # The same few hosts and addresses come again and again, so each is looked up once.
                coded = values.take(pa.array(flatnonzero)).dictionary_encode()
                hits = np.zeros(len(coded.dictionary), bool)
                hits[self._values(type_id, coded.dictionary)] = True
                row_list.append(
                    parents[flatnonzero[hits[coded.indices.to_numpy(zero_copy_only=False)]]]
                )
        meeting: Places = rows[np.unique(np.concatenate(row_list))]
        return meeting

    def _values(self, type_id: int, values: pa.Array) -> Places:
        """Places of the values, all of one type and each once, that may meet the list."""
        # Plain ASCII, nearly all of it, is handled as columns; the rest is normalised value by
        # value.
        if OBSERVABLES[type_id] == ("domain", "ip") and ascii_only(values):
            return self._hosts(values)
        if OBSERVABLES[type_id] == ("hash",) and ascii_only(values):
            return self._texts("hash", pc.ascii_lower(values))
        if OBSERVABLES[type_id] == ("ip",):
            return self._addresses(values.to_pylist(), np.arange(len(values)))
        parts = [
            (kind, text, place)
            for place, value in enumerate(values.to_pylist())
            for kind, text in sought(type_id, value)
        ]
        result = []
        for kind in dict.fromkeys(kind for kind, _, _ in parts if kind in self.kinds):
            texts = [text for of, text, _ in parts if of == kind]
            places = np.array([place for of, _, place in parts if of == kind], np.int64)
            if kind == "ip":
                result.append(self._addresses(texts, places))
            else:
                result.append(places[self._texts(kind, pa.array(texts, pa.string()))])
        return np.concatenate(result) if result else np.zeros(0, np.int64)

    def _hosts(self, values: pa.Array) -> Places:
        """Names in one spelling as `domain_of` writes them, and those that are addresses."""
        hosts = [np.zeros(0, np.int64)]
        if "domain" in self.kinds:
            hosts.append(self._texts("domain", pc.ascii_lower(pc.ascii_rtrim(values, "."))))
        if "ip" in self.kinds:
            # Only what ends in a digit or has a colon can be an address; parsing each name would be
            # slow.
            maybe = pc.match_substring_regex(values, "[0-9]$|:").to_numpy(zero_copy_only=False)
            flatnonzero = np.flatnonzero(maybe)
            hosts.append(
                self._addresses(values.take(pa.array(flatnonzero)).to_pylist(), flatnonzero)
            )
        return np.concatenate(hosts)

    def _texts(self, kind: str, texts: pa.Array) -> Places:
        if kind not in self.kinds:
            return np.zeros(0, np.int64)
        if kind == "domain":
            keys, places = parent_keys(texts)
            return places[self._list.having(keys)]
        return self._list.having(text_keys(texts, kind))

    def _addresses(self, texts: Sequence[str], places: Places) -> Places:
        """Those of the places whose text is an address that is listed, or in a listed network."""
        data = [address_bytes(text) for text in texts]
        valid = [
            place for place, number in zip(places.tolist(), data, strict=True) if number is not None
        ]
        words = address_words(b"".join(number for number in data if number is not None))
        array = np.array(valid, np.int64)
        hits = [self._list.having(network_keys(words, number)) for number in self._list.prefixes]
        listed_at: Places = array[np.concatenate([np.zeros(0, np.int64), *hits])]
        return listed_at

    @property
    def _list(self) -> IndicatorList:
        return open_indicators(self.path)


@lru_cache(maxsize=64)
def indicator_columns(list_hash: str, kinds: tuple[str, ...]) -> Listed:
    """The test over a list, opened; raises `ValueError` where that cannot be."""
    path = indicator_file(list_hash)
    try:
        open_indicators(path)
    except Fatal as error:
        # `ValueError` sets this one rule aside; `Fatal` would stop the job for a damaged list.
        raise ValueError(str(error)) from error
    return Listed(path, kinds)


def hit_fields(hit: Hit, list_name: str) -> dict[str, str]:
    """What a finding tells of a hit, for its `fields`."""
    lines = {
        "indicator.observable": hit.value,
        "indicator.kind": hit.entry.kind,
        "indicator.value": hit.entry.value,
        "indicator.list": list_name,
    }
    more = {
        "indicator.label": hit.entry.label,
        "indicator.score": None if hit.entry.score is None else str(hit.entry.score),
        "indicator.source": hit.entry.source,
    }
    return lines | {name: text for name, text in more.items() if text}
