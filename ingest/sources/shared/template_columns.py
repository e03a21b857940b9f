"""Columns of many lines from the templates of their wordings and from what differs in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.shared.line_templates import WHOLE, Path, Slot, Template


class Filled:
    """Lines of templates: `codes` tells which is each line's, `values` what it has for masks.

    There may be templates of which no line is.
    """

    def __init__(
        self,
        templates: Sequence[Template],
        codes: npt.NDArray[np.int64],
        values: Mapping[str, pa.Array],
    ) -> None:
        self._slots = [template.slots for template in templates]
        self._codes = codes
        self._rows = pa.array(codes)
        self._values = values
        self._nested = frozenset[Path]().union(*(template.nested for template in templates))

    def column(self, array: pa.Array, *path: str | int) -> pa.Array:
        """The lines' values at `path`, from `array`, which has a row for each template."""
        kind = array.type
        if path in self._nested and pa.types.is_list(kind):
            return self._list(array, path)
        if not pa.types.is_struct(kind):
            return self._leaf(array, path) if path in self._nested else self._taken(array)
        children = [
            self.column(array.field(place), *path, field.name) for place, field in enumerate(kind)
        ]
        mask = self._taken(array.is_null()) if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)

    def _taken(self, array: pa.Array) -> pa.Array:
        if array.null_count == len(array):
            return pa.nulls(len(self._codes), array.type)
        return array.take(self._rows)

    def _leaf(self, array: pa.Array, path: Path) -> pa.Array:
        slots = [each.get(path) for each in self._slots]
        kinds = {slot: number for number, slot in enumerate(dict.fromkeys(slots))}
        if len(kinds) == 1 and slots[0] is not None:
            return self._text(slots[0], None).cast(array.type)
        which = np.array([kinds[slot] for slot in slots])[self._codes]
        # The texts of each kind of slot one behind the other, of which each line takes its own.
        parts, own, before = [], np.zeros(len(which), np.int64), 0
        for slot, number in kinds.items():
            here = np.flatnonzero(which == number)
            if not len(here):
                continue  # of none of these lines, which may lack what it asks for
            if slot is None:
                part, within = array, self._codes[here]
            elif slot.pieces == WHOLE and array.type == pa.string():
                part, within = self._value(slot.masks[0], None), here
            else:
                part, within = self._text(slot, pa.array(here)), np.arange(len(here))
                part = part.cast(array.type)
            own[here] = before + within
            parts.append(part)
            before += len(part)
        return pa.concat_arrays(parts).take(pa.array(own))

    def _text(self, slot: Slot, rows: pa.Array | None) -> pa.Array:
        """The text of a slot in those rows; in all for None."""
        if slot.pieces == WHOLE:
            return self._value(slot.masks[0], rows)
        pieces: list[str | pa.Array] = [slot.pieces[0]]
        for mask, piece in zip(slot.masks, slot.pieces[1:], strict=True):
            pieces += [self._value(mask, rows), piece]
        return pc.binary_join_element_wise(*(piece for piece in pieces if piece != ""), "")

    def _value(self, mask: str, rows: pa.Array | None) -> pa.Array:
        values = self._values[mask]
        return values if rows is None else values.take(rows)

    def _list(self, array: pa.Array, path: Path) -> pa.Array:
        """Lists of structs of which one field differs."""
        name = path[0]
        taken = array.take(self._rows)
        counts = np.asarray(pc.fill_null(pc.list_value_length(taken), 0)).astype(np.int64)
        ends = np.zeros(len(taken) + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        rows = np.repeat(np.arange(len(taken)), counts)
        places = np.arange(len(rows)) - np.repeat(ends[:-1], counts)
        masks: list[str] = []
        # As wide as any template needs, also one of which no line is left.
        widths = [
            int(slot_path[1]) for each in self._slots for slot_path in each if slot_path[0] == name
        ]
        own = np.full((len(self._slots), max(counts.max(initial=0), max(widths) + 1)), -1)
        field = ""
        for code in np.unique(self._codes).tolist():
            for slot_path, (_, (mask, *_)) in self._slots[code].items():
                if slot_path[0] == name:
                    masks += [mask] if mask not in masks else []
                    own[code, int(slot_path[1])] = masks.index(mask)
                    field = str(slot_path[2])
        of = own[self._codes[rows], places]
        elements = taken.flatten()
        # Mask after mask in one array, a line's value at the line's place in each; then the rest.
        field_index = elements.type.get_field_index(field)
        whole = pa.concat_arrays(
            [*(self._values[mask] for mask in masks), elements.field(field_index)]
        )
        rest = len(masks) * len(taken) + np.arange(len(rows))
        chosen = whole.take(pa.array(np.where(of < 0, rest, of * len(taken) + rows)))
        children = elements.flatten()
        children[field_index] = chosen
        filled = pa.StructArray.from_arrays(children, fields=list(elements.type))
        return pa.ListArray.from_arrays(
            pa.array(ends), filled, type=taken.type, mask=taken.is_null()
        )
