"""Columns of a batch, leaf by leaf: distinct values for searching, single rows for confirming."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import add
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.matching.arrow_values import column_values
from alerts.rulepack.derived_fields import JSON_COLUMNS, Derived, derived
from alerts.rulepack.predicate import at, fold, present, text_of

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

SEPARATOR = b"\xff"
"""Stands before, between and after the values of a haystack; no UTF-8 text holds this byte."""

_SEPARATOR_TEXT = SEPARATOR.decode("latin-1")


@dataclass(frozen=True)
class Haystack:
    """Folded texts in one run of bytes; `starts` are the places of the separators before each."""

    data: memoryview
    starts: Numbers


@dataclass
class Distinct:
    """The different values of a path, and the rows that have each.

    `rows` holds row numbers grouped by value: those of value `v` are
    `rows[bounds[v]:bounds[v + 1]]`.
    """

    values: pa.Array
    rows: Numbers
    bounds: Numbers
    listed: list[Any] | None = None

    def to_list(self) -> list[Any]:
        """The values as Python objects, converted once."""
        if self.listed is None:
            self.listed = self.values.to_pylist()
        return self.listed

    def rows_of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """(place in `values`, row) for every row that has one of the values."""
        counts = self.bounds[values + 1] - self.bounds[values]
        place = np.repeat(np.arange(len(values)), counts)
        return place, self.rows[spread(self.bounds[values], counts)]

    def haystack(self) -> Haystack:
        """All values folded and joined, ready to be searched in one call."""
        texts = _folded(self)
        # Empty texts at both ends: `binary_join` then puts a separator before the first and after
        # the last.
        blank = pa.array([b""], pa.binary())
        padded = pa.concat_arrays([blank, texts, blank])
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(padded)], padded), SEPARATOR)
        data = memoryview(joined[0].as_buffer()).cast("B")
        # One more than the text: the separator before it.
        starts = _offsets(texts)[:-1] + np.arange(len(texts))
        return Haystack(data, starts)


def haystack_of(texts: Sequence[str]) -> tuple[memoryview, list[int]]:
    """Texts folded and joined without Arrow, whose calls cost more than the texts of few rows, and
    the place of the separator before each."""
    if "".join(texts).isascii():
        # All at once: Latin-1 writes a character of ASCII as itself, and the separator as its byte.
        data = _SEPARATOR_TEXT.join(["", *texts, ""]).encode("latin-1").lower()
        lengths = list(map(len, texts))
    else:
        folded = [fold(text).encode() for text in texts]
        data = SEPARATOR.join([b"", *folded, b""])
        lengths = list(map(len, folded))
    ends = accumulate(lengths[:-1], initial=0)
    # Before each text the separators of all that come before it.
    return memoryview(data), list(map(add, ends, range(len(texts))))


def _offsets(texts: pa.Array) -> Numbers:
    """Where each text begins among the bytes of all, and where the last ends."""
    return np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)


def _folded(distinct: Distinct) -> pa.Array:
    """The texts without case, as `fold` writes them, in UTF-8."""
    values = distinct.values
    if _is_text(values.type):
        texts = values.cast(pa.string())
        offsets = _offsets(texts)
        data = memoryview(texts.buffers()[2] or b"")[offsets[0] : offsets[-1]].tobytes()
        # Nearly all logs are ASCII, where bytes fold a column at once; `fold` has its own rules
        # beyond.
        if data.isascii():
            buffers = [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(data.lower())]
            return pa.Array.from_buffers(pa.binary(), len(texts), buffers)
    return pa.array([fold(text_of(v)) for v in distinct.to_list()], pa.string()).cast(pa.binary())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def unique(numbers: Numbers) -> Numbers:
    """The different numbers in order: `np.unique` hashes, which takes ten times as long."""
    ordered = np.sort(numbers)
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def spread(starts: Numbers, counts: Numbers) -> Numbers:
    """`starts[0]`, `starts[0] + 1`, ... for as many as `counts[0]` says, then the next."""
    total = int(counts.sum())
    ends = np.cumsum(counts)
    shifts: Numbers = np.repeat(starts - (ends - counts), counts)
    return shifts + np.arange(total)


class EventColumns:
    """The columns of a batch; each path is taken apart once, and only if asked for."""

    def __init__(self, batch: pa.RecordBatch, rows: Numbers | None = None) -> None:
        self.batch = batch
        self.count = batch.num_rows
        self.rows = np.arange(batch.num_rows) if rows is None else rows
        self._all = len(self.rows) == batch.num_rows
        self._distinct: dict[str, Distinct] = {}
        self._leaves = Leaves(batch)
        self._texts: dict[str, list[str | None] | None] = {}

    def distinct(self, path: str) -> Distinct:
        """The values at `path` in the chosen rows, without nulls, through lists."""
        if path not in self._distinct:
            array, owners = self._flat(path)
            self._distinct[path] = _group(array, owners)
        return self._distinct[path]

    def texts(self, path: str) -> list[str | None] | None:
        """The values at `path`, one for each of the chosen rows; None where it is no plain text."""
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def known(self, path: str) -> list[Any] | None:
        """What `texts` has read already."""
        return self._texts.get(path)

    def places_of(self, rows: Numbers) -> Sequence[int]:
        """Where rows of the batch stand among the chosen ones."""
        places: list[int] = (rows if self._all else np.searchsorted(self.rows, rows)).tolist()
        return places

    def is_text(self, path: str) -> bool:
        """Whether there is one text a row at `path`, or none."""
        return self._text_array(path) is not None

    def _text_array(self, path: str) -> pa.Array | None:
        array = None if derived(path) is not None else self._leaves.at(path)
        return array if array is not None and _is_text(array.type) else None

    def _read(self, path: str) -> list[str | None] | None:
        array = self._text_array(path)
        if array is None:
            return None
        if array.null_count == len(array):
            return [None] * len(self.rows)
        taken = array if self._all else array.take(pa.array(self.rows))
        values: list[str | None] = taken.to_numpy(zero_copy_only=False).tolist()
        return values

    def _flat(self, path: str) -> tuple[pa.Array, Numbers]:
        """One scalar an element, and the row each belongs to."""
        made = derived(path)
        if made is not None and made.inputs[0] in JSON_COLUMNS:
            return self._made(made)
        result = None if made else self._leaves.at(path)
        if result is not None and not pa.types.is_nested(result.type):
            return (result if self._all else result.take(pa.array(self.rows))), self.rows
        if result is not None and _is_flat_list(result.type):
            taken = result if self._all else result.take(pa.array(self.rows))
            parents = pc.list_parent_indices(taken).to_numpy(zero_copy_only=False)
            return pc.list_flatten(taken), self.rows[parents.astype(np.int64)]
        pairs = [
            (int(row), text_of(value))
            for row, whole in zip(self.rows, column(self.batch, path, self.rows), strict=True)
            for value in present(whole)
        ]
        owners = np.array([row for row, _ in pairs], np.int64)
        return pa.array([text for _, text in pairs], pa.string()), owners

    def _made(self, made: Derived) -> tuple[pa.Array, Numbers]:
        """A key of a JSON column, sought once in each document the column has."""
        base = self.distinct(made.inputs[0])
        pairs = [
            (number, text_of(value))
            for number, whole in enumerate(base.to_list())
            for value in present(made.make([whole]))
        ]
        place, rows = base.rows_of(np.array([number for number, _ in pairs], np.int64))
        return pa.array([text for _, text in pairs], pa.string()).take(pa.array(place)), rows


def _is_flat_list(kind: pa.DataType) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return listed and not pa.types.is_nested(kind.value_type)


def _group(array: pa.Array, owners: Numbers) -> Distinct:
    """Floats stay as they are: a dictionary would hold 0.0 and -0.0 for one."""
    # Nulls are no value: a missing field matches nothing.
    if array.null_count:
        kept = array.is_valid()
        owners = owners[kept.to_numpy(zero_copy_only=False)]
        array = array.drop_null()
    if pa.types.is_floating(array.type):
        return Distinct(array, owners, np.arange(len(array) + 1))
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    if len(encoded.dictionary) < 1 << 15:
        # A stable sort of short numbers goes digit by digit, ten times as fast.
        codes = codes.astype(np.int16)
    bounds = np.zeros(len(encoded.dictionary) + 1, np.int64)
    np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)), out=bounds[1:])
    return Distinct(encoded.dictionary, owners[np.argsort(codes, kind="stable")], bounds)


class Leaves:
    """The arrays of a batch, one element a row each; every struct is taken apart once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._plain: dict[str, pa.Array | None] = {}
        self._fields: dict[str, list[pa.Array]] = {}

    def at(self, path: str) -> pa.Array | None:
        """The array at `path`; None where it needs Python to get there."""
        array = self._through_structs(path)
        if array is None and "." in path:
            above, _, step = path.rpartition(".")
            listed = self._through_structs(above)
            if listed is not None and _is_struct_list(listed.type):
                return _through_list(listed, step)
        return array

    def _through_structs(self, path: str) -> pa.Array | None:
        if path not in self._plain:
            self._plain[path] = self._read(path)
        return self._plain[path]

    def _read(self, path: str) -> pa.Array | None:
        above, _, step = path.rpartition(".")
        if not above:
            index = self._batch.schema.get_field_index(path)
            return None if index < 0 else self._batch.column(index)
        struct = self._through_structs(above)
        if struct is None or not pa.types.is_struct(kind := struct.type):
            return None
        if (nth := kind.get_field_index(step)) < 0:
            return None
        # Without nulls of its own a struct's field is taken as it lies, at a fiftieth of the cost.
        if not struct.null_count:
            return struct.field(nth)
        if above not in self._fields:
            # All fields of a struct take no longer than one, and a log source's rules ask several.
            self._fields[above] = struct.flatten()
        return self._fields[above][nth]


def _inside(array: pa.StructArray, step: str) -> pa.Array:
    """A field of structs; null where the struct is."""
    # Without nulls of its own a struct's field is taken as it lies, at a fiftieth of the cost.
    return pc.struct_field(array, step) if array.null_count else array.field(step)


def _is_struct_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))


def _through_list(array: pa.Array, step: str) -> pa.Array | None:
    """list<struct<step, ...>> as list<step>; an empty list stands where there was none."""
    if array.type.value_type.get_field_index(step) < 0:
        return None
    # Flattened lists lose their nulls, so the lengths are taken from the array itself.
    inner = pc.struct_field(pc.list_flatten(array), step)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), inner)


def column(
    batch: pa.RecordBatch, path: str, rows: Numbers | None = None, taken: pa.Array | None = None
) -> list[Any]:
    """The values at `path`, one a row, None where missing, lists where it crosses a list.

    `taken`: `rows` as Arrow has them, where many columns are read of the same ones.
    """
    made = derived(path)
    if made is not None:
        inputs = [column(batch, name, rows, taken) for name in made.inputs]
        return [made.make(values) for values in zip(*inputs, strict=True)]
    name, *rest = path.split(".")
    index = batch.schema.get_field_index(name)
    if index < 0:
        return [None] * (batch.num_rows if rows is None else len(rows))
    array = batch.column(index)
    while rest and array.null_count < len(array) and pa.types.is_struct(array.type):
        if array.type.get_field_index(rest[0]) < 0:
            return [None] * (batch.num_rows if rows is None else len(rows))
        array = _inside(array, rest.pop(0))
    # Most columns of a log source are empty, and taking rows of one costs as much as of any other.
    if array.null_count == len(array):
        return [None] * (batch.num_rows if rows is None else len(rows))
    if rows is not None and len(rows) < batch.num_rows:
        array = array.take(pa.array(rows) if taken is None else taken)
    values = column_values(array)
    return [at({"": v}, ".".join(["", *rest])) for v in values] if rest else values


class Picked(dict[str | int, list[Any]]):
    """Some rows of a batch, by place: what a rule reads to confirm, and what a finding shows.

    `places` says where they stand in the `whole`, from which is taken what was read there. Values
    by path, or by the number of the path in `paths`. A dictionary, as a value is read for each
    test of each rule: what was read before is then there without a call into Python.
    """

    def __init__(
        self,
        whole: Picked | EventColumns,
        places: Sequence[int],
        paths: Sequence[str] = (),
        rows: Numbers | None = None,
    ) -> None:
        super().__init__()
        self.batch: pa.RecordBatch = whole.batch
        self.paths = paths
        self._whole = whole
        self._places = places
        self._rows = rows

    @property
    def rows(self) -> Numbers:
        """Numbers of the rows in the batch; counted where they are needed."""
        if self._rows is None:
            self._rows = self._whole.rows[np.fromiter(self._places, np.int64, len(self._places))]
        return self._rows

    def only(self, places: Sequence[int]) -> Picked:
        """Fewer of these rows; what was read of all is not read again."""
        return Picked(self, places, self.paths)

    def read_together(self, names: Sequence[str]) -> None:
        """Read some whole columns of text at once, in place of a call into Arrow for each."""
        schema, rows = self.batch.schema, self.batch.num_rows
        texts = [
            name
            for name in names
            if name not in self
            and (nth := schema.get_field_index(name)) >= 0
            and self.batch.column(nth).null_count < rows
            and _is_text(schema.field(nth).type)
        ]
        if not texts:
            return
        taken = self.batch.select(texts).take(self._numbers)
        for name, array in zip(texts, taken.columns, strict=True):
            self[name] = array.to_numpy(zero_copy_only=False).tolist()

    def take_together(
        self, names: Sequence[str], read: Sequence[str], places: Sequence[int]
    ) -> dict[str, pa.Array]:
        """Whole columns as they are at some of these places, in one call into Arrow; those without
        any value are left out. Of `read` the texts are kept, as `read_together` does."""
        batch = self.batch
        chosen = batch.select([name for name in names if batch.schema.get_field_index(name) >= 0])
        filled = {
            name: array
            for name, array in zip(chosen.schema.names, chosen.columns, strict=True)
            if array.null_count < len(array)
        }
        taken = batch.select(list(filled)).take(pa.array(self.rows[places]))
        arrays = dict(zip(filled, taken.columns, strict=True))
        if not read:
            return arrays
        nth = {place: number for number, place in enumerate(places)}
        if len(nth) < len(self._places):
            self.read_together(read)
            return arrays
        order = [nth[place] for place in range(len(nth))]
        for name in read:
            if name in arrays and _is_text(arrays[name].type):
                texts = arrays[name].to_numpy(zero_copy_only=False).tolist()
                self[name] = [texts[number] for number in order]
        return arrays

    @cached_property
    def _numbers(self) -> pa.Array:
        return pa.array(self.rows)

    def __missing__(self, path: str | int) -> list[Any]:
        name = path if isinstance(path, str) else self.paths[path]
        if (known := self._whole.known(name)) is not None:
            values = [known[place] for place in self._places]
        else:
            values = column(self.batch, name, self.rows, self._numbers)
        self[path] = values
        return values

    def known(self, name: str) -> list[Any] | None:
        """The values at a path, if they were read already, by either of its keys."""
        if (values := self.get(name)) is not None:
            return values
        slot = bisect_left(self.paths, name)
        return self.get(slot) if self.paths[slot : slot + 1] == [name] else None
